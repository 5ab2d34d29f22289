//! Starts a whole control plane once and uses all of it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Result;
use mortise_control_plane::{ADMIN, Binaries, Component, ControlPlane, Options, print_progress, until, usage_of};

const DEADLINE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);

const POD: &str = r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "first", "namespace": "trial"},
    "spec": {"containers": [{"name": "main", "image": "busybox"}]}}"#;

#[test]
fn pods_run_identities_hold_and_the_api_server_comes_back_with_its_data() -> Result<()> {
    let binaries = Binaries::ensure(&mut print_progress())?;
    let began = Instant::now();
    let plane = ControlPlane::start(&binaries, &Options { users: vec!["viewer".to_owned()], ..Options::default() })?;
    println!("started in {:.1} s", began.elapsed().as_secs_f64());

    plane.kubectl_output(&["create", "namespace", "trial"])?;
    plane.apply(POD)?;
    wait_until_running(&plane)?;

    every_port_is_on_loopback_and_for_those_with_credentials(&plane)?;
    users_have_no_rights_until_given_some(&plane)?;
    service_accounts_authenticate_with_signed_tokens(&plane)?;
    the_audit_log_has_writes_and_no_reads(&plane)?;
    the_api_server_comes_back(&plane)?;

    // Removing a deleted Pod takes the scheduler's binding and kwok's part of the kubelet.
    plane.kubectl_output(&["delete", "pod", "first", "-n", "trial", "--timeout=30s"])?;
    a_backup_restores_the_data(&plane)?;
    let pids = Component::ALL.iter().map(|part| plane.pid(*part)).collect::<Result<Vec<_>>>()?;
    let dir = plane.dir().to_owned();
    drop(plane);
    for pid in pids {
        assert!(usage_of(pid).is_err(), "process {pid} outlived its control plane");
    }
    assert!(!dir.exists(), "{} was left behind", dir.display());
    Ok(())
}

fn wait_until_running(plane: &ControlPlane) -> Result<()> {
    until("the Pod to run", DEADLINE, POLL, || {
        let phase = plane.kubectl_output(&["get", "pod", "first", "-n", "trial", "-o", "jsonpath={.status.phase}"])?;
        Ok((phase == "Running").then_some(()))
    })
}

/// Others on this machine reach these ports, too.
fn every_port_is_on_loopback_and_for_those_with_credentials(plane: &ControlPlane) -> Result<()> {
    let mut ports = BTreeSet::new();
    for part in Component::ALL {
        ports.extend(listeners(plane.pid(*part)?)?);
    }
    let api = plane.server().replace("https://", "").parse()?;
    assert!(ports.contains(&api), "{ports:?}");
    println!("listens on {ports:?}");
    for port in ports {
        assert!(port.ip().is_loopback(), "{port}");
        // Whatever it is to a client that does not speak TLS, it is no success. `/version` is etcd's path, too.
        let mut stream = TcpStream::connect(port)?;
        stream.write_all(b"GET /version HTTP/1.0\r\n\r\n")?;
        let mut answer = Vec::new();
        // It may end the connection with what it has not read.
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(!answer.contains(" 200 "), "{port}: {answer}");
        let server = format!("--server=https://{port}");
        // Without a token, kubectl would ask for a name and a password.
        let nobody = [&*server, "--insecure-skip-tls-verify", "--token=nobody", "get", "--raw"];
        for path in ["/version", "/api/v1/secrets"] {
            let mut command = plane.kubectl(&[&nobody[..], &[path]].concat());
            let output = command.env("KUBECONFIG", "/dev/null").stdin(Stdio::null()).output()?;
            let said = String::from_utf8_lossy(&output.stderr);
            // etcd's handshake ends, with an alert or before kubectl has read it.
            let is_refused = said.contains("Unauthorized") || said.contains("Unable to connect to the server");
            assert!(!output.status.success() && is_refused, "{port}{path}: {said}");
        }
    }
    Ok(())
}

/// The addresses on which a process listens by TCP, on IPv4 and IPv6.
fn listeners(pid: u32) -> Result<Vec<SocketAddr>> {
    let mut sockets = BTreeSet::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        // Files are opened and closed meanwhile.
        if let Ok(target) = fs::read_link(entry?.path()) {
            sockets.insert(target.to_string_lossy().into_owned());
        }
    }
    let mut found = Vec::new();
    for table in ["tcp", "tcp6"] {
        // proc_net_tcp(5): the number, "ADDRESS:PORT" in hexadecimal, the peer's, the state, of which 0A is LISTEN; the inode
        // is the tenth.
        for line in fs::read_to_string(format!("/proc/{pid}/net/{table}"))?.lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            if fields[3] == "0A" && sockets.contains(&format!("socket:[{}]", fields[9])) {
                let (ip, port) = fields[1].split_once(':').expect("an address has a port");
                // The end of an address of IPv6: that of `::ffff:127.0.0.1` is on loopback, and that of `::` is not.
                let ip = u32::from_str_radix(&ip[ip.len() - 8..], 16)?;
                found.push(SocketAddr::from((Ipv4Addr::from(ip.to_ne_bytes()), u16::from_str_radix(port, 16)?)));
            }
        }
    }
    Ok(found)
}

fn users_have_no_rights_until_given_some(plane: &ControlPlane) -> Result<()> {
    let viewer = plane.kubeconfig("viewer")?;
    let list = || plane.kubectl(&["get", "pods", "-n", "trial"]).env("KUBECONFIG", &viewer).output();
    let refused = list()?;
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(message.contains("Forbidden") && message.contains("\"viewer\""), "{message}");
    plane.kubectl_output(&["create", "rolebinding", "view", "-n", "trial", "--clusterrole=view", "--user=viewer"])?;
    until("the binding to take effect", DEADLINE, POLL, || Ok(list()?.status.success().then_some(())))?;
    assert!(plane.kubeconfig("stranger").is_err());
    Ok(())
}

fn service_accounts_authenticate_with_signed_tokens(plane: &ControlPlane) -> Result<()> {
    let config = plane.service_account_kubeconfig("trial", "robot")?;
    let mut whoami = plane.kubectl(&["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]);
    let output = whoami.env("KUBECONFIG", &config).output()?;
    assert_eq!(String::from_utf8_lossy(&output.stdout), "system:serviceaccount:trial:robot");
    Ok(())
}

fn the_audit_log_has_writes_and_no_reads(plane: &ControlPlane) -> Result<()> {
    let (records, mark) = plane.audit_since(0)?;
    assert!(records.iter().all(|record| record.is_write()), "reads were logged");
    // The scheduler's binding is also a create, of the Pod's subresource.
    let on_the_pod = records.iter().filter(|r| r.resource == "pods" && r.namespace == "trial" && r.name == "first");
    let created = on_the_pod.filter(|r| r.verb == "create" && r.subresource.is_empty()).collect::<Vec<_>>();
    let [record] = created[..] else { panic!("{created:#?}") };
    assert_eq!(record.code, 201);
    assert_eq!(record.user, ADMIN);
    assert!(record.user_agent.starts_with("kubectl"), "{}", record.user_agent);

    plane.kubectl_output(&["label", "pod", "first", "-n", "trial", "color=red"])?;
    let (newer, _) = plane.audit_since(mark)?;
    assert!(newer.iter().any(|r| r.verb == "patch" && r.name == "first"), "{newer:#?}");
    Ok(())
}

fn the_api_server_comes_back(plane: &ControlPlane) -> Result<()> {
    let before = plane.pid(Component::ApiServer)?;
    assert!(usage_of(before)?.cpu > Duration::ZERO);
    plane.stop_apiserver()?;
    assert!(plane.pid(Component::ApiServer).is_err());
    assert!(plane.kubectl_output(&["get", "pods", "--request-timeout=1s"]).is_err());
    plane.start_apiserver()?;
    assert_ne!(plane.pid(Component::ApiServer)?, before);
    wait_until_running(plane)?;

    // A paused server keeps its connections and does not respond.
    plane.pause(Component::ApiServer)?;
    assert!(plane.kubectl_output(&["get", "--raw", "/livez", "--request-timeout=1s"]).is_err());
    plane.resume(Component::ApiServer)?;
    plane.kubectl_output(&["get", "--raw", "/livez"]).map(drop)
}

fn a_backup_restores_the_data(plane: &ControlPlane) -> Result<()> {
    let label = |color: &str| {
        plane.kubectl_output(&["label", "namespace", "trial", "--overwrite", &format!("color={color}")]).map(drop)
    };
    let color = || plane.kubectl_output(&["get", "namespace", "trial", "-o", "jsonpath={.metadata.labels.color}"]);
    label("red")?;
    let backup = plane.back_up()?;
    label("blue")?;
    plane.restore(&backup)?;
    assert_eq!(color()?, "red");
    label("green")?;
    assert_eq!(color()?, "green");
    Ok(())
}
