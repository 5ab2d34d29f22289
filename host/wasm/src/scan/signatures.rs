//! What the functions and blocks of the current core module take and return, in numbers of values. Its sections come
//! in; nothing is checked: an index that names nothing has no values here, and the compiler refuses it.

use wasmparser::{
    BinaryReaderError, BlockType, CompositeInnerType, FunctionSectionReader, ImportSectionReader, TypeRef,
    TypeSectionReader,
};

/// How many values something takes and returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Signature {
    pub(super) parameters: u32,
    pub(super) results: u32,
}

/// The types and functions of one module. Modules do not nest in modules, so one value serves a whole walk.
#[derive(Debug, Default)]
pub(super) struct Signatures {
    types: Vec<Signature>,
    /// The type of each function, imports first.
    functions: Vec<u32>,
    /// Functions of these whose bodies have been seen, or which have none.
    seen: usize,
}

impl Signatures {
    pub(super) fn add_types(&mut self, section: TypeSectionReader<'_>) -> Result<(), BinaryReaderError> {
        for group in section {
            self.types.extend(group?.into_types().map(|defined| match defined.composite_type.inner {
                CompositeInnerType::Func(function) => Signature {
                    parameters: u32::try_from(function.params().len()).unwrap_or(u32::MAX),
                    results: u32::try_from(function.results().len()).unwrap_or(u32::MAX),
                },
                _ => Signature::default(),
            }));
        }
        Ok(())
    }

    pub(super) fn add_imports(&mut self, section: ImportSectionReader<'_>) -> Result<(), BinaryReaderError> {
        for import in section.into_imports() {
            if let TypeRef::Func(of_type) = import?.ty {
                self.functions.push(of_type);
            }
        }
        self.seen = self.functions.len();
        Ok(())
    }

    pub(super) fn add_functions(&mut self, section: FunctionSectionReader<'_>) -> Result<(), BinaryReaderError> {
        for of_type in section {
            self.functions.push(of_type?);
        }
        Ok(())
    }

    /// The signature of the next body.
    pub(super) fn next_body(&mut self) -> Signature {
        self.seen += 1;
        u32::try_from(self.seen - 1).map(|function| self.of_function(function)).unwrap_or_default()
    }

    pub(super) fn of_function(&self, function: u32) -> Signature {
        self.functions.get(function as usize).map(|of_type| self.of_type(*of_type)).unwrap_or_default()
    }

    pub(super) fn of_type(&self, of_type: u32) -> Signature {
        self.types.get(of_type as usize).copied().unwrap_or_default()
    }

    pub(super) fn of_block(&self, block: BlockType) -> Signature {
        match block {
            BlockType::Empty => Signature::default(),
            BlockType::Type(_) => Signature { parameters: 0, results: 1 },
            BlockType::FuncType(of_type) => self.of_type(of_type),
        }
    }
}
