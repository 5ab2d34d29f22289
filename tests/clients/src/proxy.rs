//! A way to a server that can be cut: bytes are passed on, until nothing is. Input: the server's address. Output: another port
//! on loopback. It must not know what the bytes mean.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(crate) struct Proxy {
    pub(crate) port: u16,
    open: watch::Sender<bool>,
}

impl Proxy {
    pub(crate) async fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, open) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, server, open.clone()));
            }
        });
        Self { port, open: sender }
    }

    /// Ends all connections and closes new ones, or lets them through again.
    pub(crate) fn set_open(&self, open: bool) {
        self.open.send_replace(open);
    }
}

async fn pass(mut client: TcpStream, server: SocketAddr, mut open: watch::Receiver<bool>) {
    if !*open.borrow() {
        return;
    }
    // At the end of a test the server is gone before its clients.
    let Ok(mut server) = TcpStream::connect(server).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        _ = open.wait_for(|open| !open) => {}
    }
}
