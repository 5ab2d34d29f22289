//! The path to a value inside an object, kept as links on the stack so that it costs nothing until it is said. It must not
//! know schemas.

use std::fmt;

/// Where a walk is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Path<'a> {
    Root,
    /// A path that is known as text.
    Base(&'a str),
    Field(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
    /// A map's key in brackets.
    Key(&'a Path<'a>, &'a str),
}

impl<'a> Path<'a> {
    pub(crate) fn field(&'a self, name: &'a str) -> Self {
        Path::Field(self, name)
    }

    pub(crate) fn index(&'a self, at: usize) -> Self {
        Path::Index(self, at)
    }

    pub(crate) fn key(&'a self, name: &'a str) -> Self {
        Path::Key(self, name)
    }

    pub(crate) fn is_root(&self) -> bool {
        matches!(self, Path::Root)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Base(text) => out.write_str(text),
            Path::Field(Path::Root, name) => out.write_str(name),
            Path::Field(parent, name) => write!(out, "{parent}.{name}"),
            Path::Index(parent, at) => write!(out, "{parent}[{at}]"),
            Path::Key(parent, name) => write!(out, "{parent}[{name}]"),
        }
    }
}
