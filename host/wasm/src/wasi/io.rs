//! WASI's streams and pollables, which are always ready: stdin is closed, output is kept in memory, and no other stream
//! exists. So nothing blocks, no call needs an I/O runtime, and none outlasts its deadline.

use std::sync::PoisonError;

use bytes::Bytes;
use wasmtime::component::{HasData, HasSelf, Linker, Resource, ResourceTable};
use wasmtime_wasi::async_trait;
use wasmtime_wasi::p2::bindings::sync::io::{poll, streams};
use wasmtime_wasi::p2::pipe::ClosedInputStream;
use wasmtime_wasi::p2::{
    DynInputStream, DynOutputStream, DynPollable, OutputStream, Pollable, StreamError, StreamResult, subscribe,
};

use crate::machine::SharedTail;
use crate::state::CallState;

/// Bytes of one write. Twice what Rust's standard library writes at once.
const MAX_WRITE_BYTES: usize = 8 << 10;

struct Table;

impl HasData for Table {
    type Data<'a> = &'a mut ResourceTable;
}

pub(super) fn add_to_linker(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    wasmtime_wasi_io::bindings::wasi::io::error::add_to_linker::<CallState, Table>(linker, |state| &mut state.table)?;
    poll::add_to_linker::<CallState, HasSelf<CallState>>(linker, |state| state)?;
    streams::add_to_linker::<CallState, HasSelf<CallState>>(linker, |state| state)
}

pub(super) fn ready(table: &mut ResourceTable) -> wasmtime::Result<Resource<DynPollable>> {
    let always = table.push(Always)?;
    subscribe(table, always)
}

pub(super) fn closed_input() -> DynInputStream {
    Box::new(ClosedInputStream)
}

pub(super) fn output(tail: SharedTail) -> DynOutputStream {
    Box::new(Output(tail))
}

struct Always;

#[async_trait]
impl Pollable for Always {
    async fn ready(&mut self) {}
}

struct Output(SharedTail);

#[async_trait]
impl Pollable for Output {
    async fn ready(&mut self) {}
}

impl OutputStream for Output {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(MAX_WRITE_BYTES)
    }
}

impl poll::Host for CallState {
    fn poll(&mut self, pollables: Vec<Resource<DynPollable>>) -> wasmtime::Result<Vec<u32>> {
        self.count()?;
        if pollables.is_empty() {
            wasmtime::bail!("the guest polls an empty list, which would block forever");
        }
        for pollable in &pollables {
            self.table.get(pollable)?;
        }
        Ok((0..u32::try_from(pollables.len())?).collect())
    }
}

impl poll::HostPollable for CallState {
    fn ready(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<bool> {
        self.count()?;
        self.table.get(&pollable)?;
        Ok(true)
    }

    fn block(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<()> {
        self.count()?;
        self.table.get(&pollable)?;
        Ok(())
    }

    fn drop(&mut self, pollable: Resource<DynPollable>) -> wasmtime::Result<()> {
        poll::HostPollable::drop(&mut self.table, pollable)
    }
}

impl streams::Host for CallState {
    fn convert_stream_error(&mut self, error: StreamError) -> wasmtime::Result<streams::StreamError> {
        streams::Host::convert_stream_error(&mut self.table, error)
    }
}

impl CallState {
    fn write_out(&mut self, stream: &Resource<DynOutputStream>, bytes: Vec<u8>) -> StreamResult<()> {
        self.count().map_err(StreamError::Trap)?;
        if bytes.len() > MAX_WRITE_BYTES {
            return Err(StreamError::trap("the guest writes more at once than check-write granted"));
        }
        self.table.get_mut(stream)?.write(bytes.into())
    }

    fn write_zeros(&mut self, stream: &Resource<DynOutputStream>, len: u64) -> StreamResult<()> {
        match usize::try_from(len) {
            Ok(len) if len <= MAX_WRITE_BYTES => self.write_out(stream, vec![0; len]),
            _ => Err(StreamError::trap("the guest writes more at once than check-write granted")),
        }
    }

    /// The only input stream is closed.
    fn read_in(&mut self, stream: &Resource<DynInputStream>, len: u64) -> StreamResult<Vec<u8>> {
        self.count().map_err(StreamError::Trap)?;
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(MAX_WRITE_BYTES);
        Ok(self.table.get_mut(stream)?.read(len)?.into())
    }
}

impl streams::HostOutputStream for CallState {
    fn check_write(&mut self, stream: Resource<DynOutputStream>) -> StreamResult<u64> {
        Ok(self.table.get_mut(&stream)?.check_write()? as u64)
    }

    fn write(&mut self, stream: Resource<DynOutputStream>, bytes: Vec<u8>) -> StreamResult<()> {
        self.write_out(&stream, bytes)
    }

    fn blocking_write_and_flush(&mut self, stream: Resource<DynOutputStream>, bytes: Vec<u8>) -> StreamResult<()> {
        self.write_out(&stream, bytes)
    }

    fn flush(&mut self, stream: Resource<DynOutputStream>) -> StreamResult<()> {
        self.table.get(&stream)?;
        Ok(())
    }

    fn blocking_flush(&mut self, stream: Resource<DynOutputStream>) -> StreamResult<()> {
        self.table.get(&stream)?;
        Ok(())
    }

    fn subscribe(&mut self, stream: Resource<DynOutputStream>) -> wasmtime::Result<Resource<DynPollable>> {
        subscribe(&mut self.table, stream)
    }

    fn write_zeroes(&mut self, stream: Resource<DynOutputStream>, len: u64) -> StreamResult<()> {
        self.write_zeros(&stream, len)
    }

    fn blocking_write_zeroes_and_flush(&mut self, stream: Resource<DynOutputStream>, len: u64) -> StreamResult<()> {
        self.write_zeros(&stream, len)
    }

    fn splice(
        &mut self,
        into: Resource<DynOutputStream>,
        from: Resource<DynInputStream>,
        len: u64,
    ) -> StreamResult<u64> {
        let bytes = self.read_in(&from, len)?;
        let len = bytes.len() as u64;
        self.write_out(&into, bytes)?;
        Ok(len)
    }

    fn blocking_splice(
        &mut self,
        into: Resource<DynOutputStream>,
        from: Resource<DynInputStream>,
        len: u64,
    ) -> StreamResult<u64> {
        self.splice(into, from, len)
    }

    fn drop(&mut self, stream: Resource<DynOutputStream>) -> wasmtime::Result<()> {
        self.table.delete(stream)?;
        Ok(())
    }
}

impl streams::HostInputStream for CallState {
    fn read(&mut self, stream: Resource<DynInputStream>, len: u64) -> StreamResult<Vec<u8>> {
        self.read_in(&stream, len)
    }

    fn blocking_read(&mut self, stream: Resource<DynInputStream>, len: u64) -> StreamResult<Vec<u8>> {
        self.read_in(&stream, len)
    }

    fn skip(&mut self, stream: Resource<DynInputStream>, len: u64) -> StreamResult<u64> {
        Ok(self.read_in(&stream, len)?.len() as u64)
    }

    fn blocking_skip(&mut self, stream: Resource<DynInputStream>, len: u64) -> StreamResult<u64> {
        self.skip(stream, len)
    }

    fn subscribe(&mut self, stream: Resource<DynInputStream>) -> wasmtime::Result<Resource<DynPollable>> {
        subscribe(&mut self.table, stream)
    }

    fn drop(&mut self, stream: Resource<DynInputStream>) -> wasmtime::Result<()> {
        self.table.delete(stream)?;
        Ok(())
    }
}
