//! WASI for plugins: every interface that toolchains' guests import, and no system behind it. The clocks show the
//! call's time, the seed of hash maps is fixed and there are no random numbers, stdout and stderr are kept in memory,
//! there are no files, environment or sockets, and nothing ever blocks (G5).
//!
//! wasmtime-wasi provides the interfaces, and the file and socket types, of which no guest can get a handle. What a
//! guest can reach is implemented here on the state of its call, so that a call without WASI pays nothing for it.

mod io;

use std::sync::{Arc, Mutex};

use wasmtime::component::{HasSelf, Linker, Resource};
use wasmtime_wasi::cli::{WasiCli, WasiCliView};
use wasmtime_wasi::filesystem::{WasiFilesystem, WasiFilesystemView};
use wasmtime_wasi::p2::bindings::{cli, clocks, filesystem, random, sockets, sync};
use wasmtime_wasi::p2::{
    DynInputStream, DynOutputStream, DynPollable, Network, SocketError, SocketResult, TcpSocket, UdpSocket,
};
use wasmtime_wasi::sockets::{WasiSockets, WasiSocketsView};
use wasmtime_wasi::{I32Exit, WasiCtx, WasiCtxView, WasiView};

use crate::log::Tail;
use crate::state::CallState;

/// What language runtimes seed their hash maps with. A guest whose maps an object's author fills with colliding keys
/// meets its deadline.
pub(crate) const HASH_SEED: (u64, u64) = (0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344);

pub(crate) fn add_to_linker(linker: &mut Linker<CallState>) -> wasmtime::Result<()> {
    fn same(state: &mut CallState) -> &mut CallState {
        state
    }
    type Own = HasSelf<CallState>;
    let l = linker;
    io::add_to_linker(l)?;
    clocks::wall_clock::add_to_linker::<_, Own>(l, same)?;
    clocks::monotonic_clock::add_to_linker::<_, Own>(l, same)?;
    random::insecure_seed::add_to_linker::<_, Own>(l, same)?;
    cli::environment::add_to_linker::<_, Own>(l, same)?;
    cli::exit::add_to_linker::<_, Own>(l, same)?;
    cli::stdin::add_to_linker::<_, Own>(l, same)?;
    cli::stdout::add_to_linker::<_, Own>(l, same)?;
    cli::stderr::add_to_linker::<_, Own>(l, same)?;
    cli::terminal_input::add_to_linker::<_, WasiCli>(l, CallState::cli)?;
    cli::terminal_output::add_to_linker::<_, WasiCli>(l, CallState::cli)?;
    cli::terminal_stdin::add_to_linker::<_, WasiCli>(l, CallState::cli)?;
    cli::terminal_stdout::add_to_linker::<_, WasiCli>(l, CallState::cli)?;
    cli::terminal_stderr::add_to_linker::<_, WasiCli>(l, CallState::cli)?;
    filesystem::preopens::add_to_linker::<_, WasiFilesystem>(l, CallState::filesystem)?;
    sync::filesystem::types::add_to_linker::<_, WasiFilesystem>(l, CallState::filesystem)?;
    let options = sockets::network::LinkOptions::default();
    sockets::network::add_to_linker::<_, Own>(l, &options, same)?;
    sockets::instance_network::add_to_linker::<_, WasiSockets>(l, CallState::sockets)?;
    sockets::ip_name_lookup::add_to_linker::<_, WasiSockets>(l, CallState::sockets)?;
    sync::sockets::tcp::add_to_linker::<_, WasiSockets>(l, CallState::sockets)?;
    sync::sockets::udp::add_to_linker::<_, WasiSockets>(l, CallState::sockets)?;
    sockets::tcp_create_socket::add_to_linker::<_, Own>(l, same)?;
    sync::sockets::udp_create_socket::add_to_linker::<_, Own>(l, same)?;
    Ok(())
}

impl WasiView for CallState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        // A fresh builder grants nothing: no arguments, variables, directories or addresses; stdio is empty.
        let ctx = self.wasi.context.get_or_insert_with(|| Box::new(WasiCtx::builder().build()));
        WasiCtxView { ctx, table: &mut self.table }
    }
}

impl clocks::wall_clock::Host for CallState {
    fn now(&mut self) -> wasmtime::Result<clocks::wall_clock::Datetime> {
        let now = self.now_unix_ms();
        let nanoseconds = u32::try_from(now % 1_000).expect("a remainder of 1000 is small") * 1_000_000;
        Ok(clocks::wall_clock::Datetime { seconds: now / 1_000, nanoseconds })
    }

    fn resolution(&mut self) -> wasmtime::Result<clocks::wall_clock::Datetime> {
        Ok(clocks::wall_clock::Datetime { seconds: 0, nanoseconds: 1_000_000 })
    }
}

/// No time passes during a call, so every timer has fired already.
impl clocks::monotonic_clock::Host for CallState {
    fn now(&mut self) -> wasmtime::Result<u64> {
        Ok(0)
    }

    fn resolution(&mut self) -> wasmtime::Result<u64> {
        Ok(1)
    }

    fn subscribe_instant(&mut self, _when: u64) -> wasmtime::Result<Resource<DynPollable>> {
        io::ready(&mut self.table)
    }

    fn subscribe_duration(&mut self, _duration: u64) -> wasmtime::Result<Resource<DynPollable>> {
        io::ready(&mut self.table)
    }
}

impl random::insecure_seed::Host for CallState {
    fn insecure_seed(&mut self) -> wasmtime::Result<(u64, u64)> {
        Ok(HASH_SEED)
    }
}

impl cli::environment::Host for CallState {
    fn get_environment(&mut self) -> wasmtime::Result<Vec<(String, String)>> {
        Ok(Vec::new())
    }

    fn get_arguments(&mut self) -> wasmtime::Result<Vec<String>> {
        Ok(Vec::new())
    }

    fn initial_cwd(&mut self) -> wasmtime::Result<Option<String>> {
        Ok(None)
    }
}

impl cli::exit::Host for CallState {
    fn exit(&mut self, status: Result<(), ()>) -> wasmtime::Result<()> {
        Err(I32Exit(i32::from(status.is_err())).into())
    }

    fn exit_with_code(&mut self, status: u8) -> wasmtime::Result<()> {
        Err(I32Exit(status.into()).into())
    }
}

impl cli::stdin::Host for CallState {
    fn get_stdin(&mut self) -> wasmtime::Result<Resource<DynInputStream>> {
        Ok(self.table.push(io::closed_input())?)
    }
}

impl cli::stdout::Host for CallState {
    fn get_stdout(&mut self) -> wasmtime::Result<Resource<DynOutputStream>> {
        let tail = self.wasi.stdout.get_or_insert_with(|| Arc::new(Mutex::new(Tail::new(self.wasi.stdio_bytes))));
        Ok(self.table.push(io::output(tail.clone()))?)
    }
}

impl cli::stderr::Host for CallState {
    fn get_stderr(&mut self) -> wasmtime::Result<Resource<DynOutputStream>> {
        let tail = self.wasi.stderr.get_or_insert_with(|| Arc::new(Mutex::new(Tail::new(self.wasi.stdio_bytes))));
        Ok(self.table.push(io::output(tail.clone()))?)
    }
}

impl sockets::network::Host for CallState {
    fn convert_error_code(&mut self, error: SocketError) -> wasmtime::Result<sockets::network::ErrorCode> {
        error.downcast()
    }

    fn network_error_code(
        &mut self,
        _error: Resource<wasmtime_wasi::p2::IoError>,
    ) -> wasmtime::Result<Option<sockets::network::ErrorCode>> {
        Ok(None)
    }
}

impl sockets::network::HostNetwork for CallState {
    fn drop(&mut self, network: Resource<Network>) -> wasmtime::Result<()> {
        self.table.delete(network)?;
        Ok(())
    }
}

impl sockets::tcp_create_socket::Host for CallState {
    fn create_tcp_socket(&mut self, _family: sockets::network::IpAddressFamily) -> SocketResult<Resource<TcpSocket>> {
        Err(sockets::network::ErrorCode::AccessDenied.into())
    }
}

impl sync::sockets::udp_create_socket::Host for CallState {
    fn create_udp_socket(&mut self, _family: sockets::network::IpAddressFamily) -> SocketResult<Resource<UdpSocket>> {
        Err(sockets::network::ErrorCode::AccessDenied.into())
    }
}
