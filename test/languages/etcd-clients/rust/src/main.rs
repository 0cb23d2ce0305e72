//! Uses etcd's API through the crate etcd-client, and prints what each step has shown, without what differs between two
//! stores. The same lines must come from etcd and from any server in front of it.
//!
//!     client ENDPOINT          runs the steps
//!     client ENDPOINT PREFIX   prints each event below the prefix, until the key PREFIXend is written

use etcd_client::*;
use std::{collections::BTreeMap, time::Duration};

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn refusal(error: Error) -> String {
    match error {
        Error::GRpcStatus(status) => format!("{:?}: {}", status.code(), status.message()),
        other => other.to_string(),
    }
}

fn event(event: &Event, base: i64) -> String {
    let kv = event.kv().unwrap();
    let before = event.prev_kv().map(|kv| format!(" before {}", text(kv.value()))).unwrap_or_default();
    let kind = if event.event_type() == EventType::Put { "PUT" } else { "DELETE" };
    format!("{kind} {}={} at {}{before}", text(kv.key()), text(kv.value()), kv.mod_revision() - base)
}

/// The next `count` events of the stream.
async fn events(stream: &mut WatchStream, count: usize, base: i64) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    while found.len() < count {
        let response = stream.message().await?.expect("the stream has ended");
        found.extend(response.events().iter().map(|each| event(each, base)));
    }
    Ok(found)
}

async fn keys(client: &mut Client) -> Result<i64, Error> {
    let base = client.put("kv/a", "1", None).await?.header().unwrap().revision();
    let put = client.put("kv/a", "2", Some(PutOptions::new().with_prev_key())).await?;
    println!("put at {}, before {}", put.header().unwrap().revision() - base, put.prev_key().unwrap().value_str()?);
    for i in 0..5 {
        client.put(format!("kv/many/{i}"), format!("{}", 9 - i), None).await?;
    }
    let options = GetOptions::new().with_prefix().with_limit(2).with_sort(SortTarget::Value, SortOrder::Descend);
    let page = client.get("kv/", Some(options)).await?;
    let found: Vec<_> = page.kvs().iter().map(|kv| (text(kv.key()), text(kv.value()))).collect();
    println!("get {found:?}, more {}, count {}, at {}", page.more(), page.count(), page.header().unwrap().revision() - base);
    let past = client.get("kv/a", Some(GetOptions::new().with_revision(base))).await?;
    println!("past {}", past.kvs()[0].value_str()?);
    let only = client.get("kv/", Some(GetOptions::new().with_prefix().with_keys_only())).await?;
    println!("keys {}, value {:?}", only.kvs().len(), only.kvs()[0].value_str()?);
    let count = client.get("kv/many/2", Some(GetOptions::new().with_from_key().with_count_only())).await?;
    println!("count {}", count.count());
    let txn = Txn::new()
        .when([Compare::value("kv/a", CompareOp::Equal, "2"), Compare::version("kv/a", CompareOp::Greater, 1)])
        .and_then([TxnOp::put("kv/b", "b", None), TxnOp::get("kv/b", None), TxnOp::txn(Txn::new().and_then([TxnOp::delete("kv/a", None)]))])
        .or_else([TxnOp::get("kv/a", None)]);
    let done = client.txn(txn).await?;
    println!("txn {}, {} responses", done.succeeded(), done.op_responses().len());
    let deleted = client.delete("kv/many/", Some(DeleteOptions::new().with_prefix().with_prev_key())).await?;
    println!("deleted {}, {}", deleted.deleted(), deleted.prev_kvs().len());
    Ok(base)
}

async fn watches(client: &mut Client, base: i64) -> Result<(), Error> {
    let options = WatchOptions::new().with_prefix().with_start_revision(base).with_prev_key();
    let mut past = client.watch("kv/", Some(options)).await?;
    println!("past {:?}", events(&mut past, 14, base).await?);
    let mut live = client.watch("live/", Some(WatchOptions::new().with_prefix().with_prev_key())).await?;
    println!("created {}", live.message().await?.unwrap().created());
    client.put("live/a", "1", None).await?;
    client.put("live/a", "2", None).await?;
    client.delete("live/a", None).await?;
    println!("live {:?}", events(&mut live, 3, base).await?);
    // A second watch on the same stream, and progress.
    let options = WatchOptions::new().with_filters([WatchFilterType::NoPut]);
    live.watch("other", Some(options)).await?;
    println!("second {}", live.message().await?.unwrap().created());
    client.put("other", "1", None).await?;
    client.delete("other", None).await?;
    println!("filtered {:?}", events(&mut live, 1, base).await?);
    live.request_progress().await?;
    let progress = live.message().await?.unwrap();
    println!("progress {} events at {}", progress.events().len(), progress.header().unwrap().revision() - base);
    live.cancel(0).await?;
    println!("canceled {}", live.message().await?.unwrap().canceled());
    let now = client.get("kv/b", None).await?.header().unwrap().revision();
    client.compact(now, Some(CompactionOptions::new().with_physical())).await?;
    println!("compacted: {}", refusal(client.get("kv/b", Some(GetOptions::new().with_revision(base))).await.unwrap_err()));
    let mut compacted = client.watch("kv/", Some(WatchOptions::new().with_start_revision(base))).await?;
    let mut response = compacted.message().await?.unwrap();
    while !response.canceled() {
        response = compacted.message().await?.unwrap();
    }
    println!("watch of the compacted: {} {}", response.compact_revision() - base, response.cancel_reason());
    Ok(())
}

async fn leases(client: &mut Client, base: i64) -> Result<(), Error> {
    let lease = client.lease_grant(2, None).await?.id();
    let mut watch = client.watch("lease", None).await?;
    watch.message().await?;
    client.put("lease", "v", Some(PutOptions::new().with_lease(lease))).await?;
    let (mut keeper, mut kept) = client.lease_keep_alive(lease).await?;
    for _ in 0..4 {
        keeper.keep_alive().await?;
        println!("kept {}", kept.message().await?.unwrap().ttl());
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let left = client.lease_time_to_live(lease, Some(LeaseTimeToLiveOptions::new().with_keys())).await?;
    println!("granted {}, keys {}", left.granted_ttl(), left.keys().len());
    println!("leases {}", client.leases().await?.leases().len());
    println!("expired {:?}", events(&mut watch, 2, base).await?);
    println!("revoked: {}", refusal(client.lease_revoke(lease).await.unwrap_err()));
    Ok(())
}

async fn locks(client: &mut Client) -> Result<(), Error> {
    let first = client.lock("lock", None).await?;
    let mut rival = client.clone();
    let second = tokio::spawn(async move { rival.lock("lock", None).await });
    let two = GetOptions::new().with_prefix().with_count_only();
    while client.get("lock/", Some(two.clone())).await?.count() < 2 {}
    println!("waits {}", !second.is_finished());
    client.unlock(first.key()).await?;
    let second = second.await.unwrap()?;
    println!("locked {}", second.key().starts_with(b"lock/"));
    let lease = client.lease_grant(30, None).await?.id();
    let leader = client.campaign("election", "a", lease).await?.leader().unwrap().clone();
    let mut observed = client.observe("election").await?;
    println!("observed {}", observed.message().await?.unwrap().kv().unwrap().value_str()?);
    client.proclaim("b", Some(ProclaimOptions::new().with_leader(leader.clone()))).await?;
    println!("observed {}", observed.message().await?.unwrap().kv().unwrap().value_str()?);
    println!("leader {}", client.leader("election").await?.kv().unwrap().value_str()?);
    client.resign(Some(ResignOptions::new().with_leader(leader))).await?;
    println!("resigned: {}", refusal(client.leader("election").await.unwrap_err()));
    Ok(())
}

async fn maintenance(client: &mut Client) -> Result<(), Error> {
    println!("members {}", client.member_list().await?.members().len());
    let status = client.status().await?;
    println!("leads {}", status.leader() == status.header().unwrap().member_id());
    println!("alarms {}", client.alarm(AlarmAction::Get, AlarmType::None, None).await?.alarms().len());
    println!("hash {}", client.hash_kv(0).await?.hash() > 0);
    client.defragment().await?;
    let mut snapshot = client.snapshot().await?;
    let mut size = 0;
    while let Some(part) = snapshot.message().await? {
        size += part.blob().len();
    }
    println!("snapshot {}", size > 20_000);
    client.role_add("reader").await?;
    client.role_grant_permission("reader", Permission::read("kv/").with_prefix()).await?;
    println!("permissions {}", client.role_get("reader").await?.permissions().len());
    println!("again: {}", refusal(client.role_add("reader").await.unwrap_err()));
    client.user_add("ann", "a", None).await?;
    client.user_grant_role("ann", "reader").await?;
    println!("roles {:?}, users {:?}", client.user_get("ann").await?.roles(), client.user_list().await?.users());
    Ok(())
}

/// The crate does not resume a watch: that is done here, by revisions.
async fn follow(endpoint: &str, prefix: &str) {
    let mut next = 1;
    loop {
        if let Err(error) = follow_from(endpoint, prefix, &mut next).await {
            eprintln!("{error}");
        } else {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn follow_from(endpoint: &str, prefix: &str, next: &mut i64) -> Result<(), Error> {
    let mut client = Client::connect([endpoint], None).await?;
    let options = WatchOptions::new().with_prefix().with_start_revision(*next);
    let mut watch = client.watch(prefix, Some(options)).await?;
    while let Some(response) = watch.message().await? {
        for each in response.events() {
            *next = each.kv().unwrap().mod_revision() + 1;
            println!("{}", event(each, 0));
            if text(each.kv().unwrap().key()) == format!("{prefix}end") {
                return Ok(());
            }
        }
    }
    Err(Error::WatchError("the stream has ended".into()))
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    let arguments: BTreeMap<usize, String> = std::env::args().enumerate().collect();
    let endpoint = &arguments[&1];
    if let Some(prefix) = arguments.get(&2) {
        follow(endpoint, prefix).await;
        return Ok(());
    }
    let mut client = Client::connect([endpoint], None).await?;
    let base = keys(&mut client).await?;
    watches(&mut client, base).await?;
    leases(&mut client, base).await?;
    locks(&mut client).await?;
    maintenance(&mut client).await
}
