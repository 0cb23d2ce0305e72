"""Uses etcd's API through etcd3 (gRPC) and etcd3gw (the JSON gateway), and prints what each step has shown, without what
differs between two stores. The same lines must come from etcd and from any server in front of it.

    main.py ENDPOINT          runs the steps
    main.py ENDPOINT PREFIX   prints each event below the prefix, until the key PREFIXend is written
"""

import io
import sys
import time

import etcd3
import etcd3gw

host, port = sys.argv[1].split(":")


def say(*values):
    print(*values, flush=True)


def refused(call):
    try:
        return call()
    except Exception as error:
        return type(error).__name__


def first(events, count):
    """The first events of a watch, and ends it."""
    iterator, cancel = events
    found = [next(iterator) for _ in range(count)]
    cancel()
    return found


def text(event):
    return type(event).__name__, event.key.decode(), event.value.decode(), event.version


def by_grpc():
    client = etcd3.client(host=host, port=int(port), timeout=30)
    base = client.put("base", "").header.revision
    for key in "abc":
        client.put(f"grpc/{key}", key)
    say("get", client.get("grpc/a")[0], client.get("grpc/none")[0])
    say("prefix", [value for value, _ in client.get_prefix("grpc/", sort_order="descend")])
    say("at", client.get_response("grpc/a").header.revision - base)
    say("replaced", client.replace("grpc/a", "a", "a2"), client.replace("grpc/a", "a", "a3"))
    say("created", client.put_if_not_exists("grpc/a", "x"), client.put_if_not_exists("grpc/d", "d"))
    transaction = client.transaction(
        compare=[client.transactions.value("grpc/b") == "b", client.transactions.version("grpc/b") > 0],
        success=[client.transactions.put("grpc/b", "b2"), client.transactions.get("grpc/b")],
        failure=[],
    )
    say("transaction", transaction[0], transaction[1][1][0][0])
    watch = client.watch_prefix("watched/", prev_kv=True)
    client.put("watched/1", "a")
    client.put("watched/1", "b")
    client.delete("watched/1")
    say("watch", [text(event) for event in first(watch, 3)])
    start = client.get("base")[1].mod_revision
    say("past", [text(event) for event in first(client.watch("grpc/a", start_revision=start), 2)])
    lease = client.lease(3)
    client.put("lease/1", "v", lease=lease)
    for _ in range(4):
        time.sleep(1)
        say("refreshed", lease.refresh()[0].TTL)
    info = client.get_lease_info(lease.id)
    say("lease", info.grantedTTL, list(info.keys))
    expired = client.watch("lease/1")
    say("expired", [text(event) for event in first(expired, 1)])
    say("revoked", refused(lambda: client.revoke_lease(lease.id)))
    # What waits for a lock in etcd3 0.12 needs a tenacity that Python 3.11 can't import.
    lock = client.lock("lock", ttl=10)
    say("lock", lock.acquire(), lock.is_acquired(), lock.refresh()[0].TTL, lock.release(), lock.is_acquired())
    say("members", len(list(client.members)), "alarms", len(list(client.list_alarms())))
    revision = client.get_response("base").header.revision
    client.compact(revision)
    say("compacted", refused(lambda: first(client.watch("base", start_revision=1), 1)))
    snapshot = io.BytesIO()
    client.snapshot(snapshot)
    say("snapshot", snapshot.tell() > 20_000)
    client.close()


def by_gateway():
    client = etcd3gw.client(host=host, port=int(port), api_path="/v3/", timeout=30)
    say("put", client.put("gateway/a", "1"), client.get("gateway/a"))
    say("created", client.create("gateway/a", "2"), client.create("gateway/b", "2"))
    say("replaced", client.replace("gateway/a", "1", "3"), client.replace("gateway/a", "1", "4"))
    say("prefix", [value for value, _ in client.get_prefix("gateway/")])
    watch = client.watch_prefix("gateway/w")
    time.sleep(1)
    client.put("gateway/w1", "a")
    client.delete("gateway/w1")
    kvs = [(event.get("type", "PUT"), event["kv"]["key"], event["kv"].get("value")) for event in first(watch, 2)]
    say("watch", kvs)
    lease = client.lease(ttl=3)
    client.put("gateway/lease", "v", lease=lease)
    for _ in range(4):
        time.sleep(1)
        say("refreshed", lease.refresh())
    say("keys", lease.keys(), lease.revoke(), client.get("gateway/lease"))
    with client.lock("gateway", ttl=10) as lock:
        say("locked", lock.is_acquired(), lock.refresh(), client.lock("gateway", ttl=10).acquire())
    say("deleted", client.delete_prefix("gateway/"), len(client.members()))


def follow(prefix):
    """Neither library resumes a watch: that is done here, by revisions."""
    client = None
    following = 1
    while True:
        try:
            client = client or etcd3.client(host=host, port=int(port), timeout=10)
            client.get("base", serializable=False)
            responses, cancel = client.watch_prefix_response(prefix, start_revision=following)
            for response in responses:
                for event in response.events:
                    following = event.mod_revision + 1
                    kind = "PUT" if isinstance(event, etcd3.events.PutEvent) else "DELETE"
                    say(f"{kind} {event.key.decode()}={event.value.decode()} at {event.mod_revision}")
                    if event.key.decode() == f"{prefix}end":
                        return
        except Exception as error:
            print(repr(error), file=sys.stderr)
        client = None
        time.sleep(0.2)


if len(sys.argv) > 2:
    follow(sys.argv[2])
else:
    by_grpc()
    by_gateway()
