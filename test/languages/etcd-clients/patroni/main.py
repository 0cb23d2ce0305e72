"""Uses etcd's API (the JSON gateway) through Patroni's class for it, without a PostgreSQL.

    main.py ENDPOINT          runs the steps, and prints what each has shown, without what differs between two stores
    main.py ENDPOINT NAME     takes part in the election of a leader as the member NAME, and prints its changes of role
"""

import logging
import os
import sys
import threading
import time

from patroni.dcs import get_dcs

# "waiting" and retries are as usual; what has failed is in the output.
logging.basicConfig(level=logging.ERROR)

COMMON = {"scope": "batman", "namespace": "/service/", "loop_wait": 1}
# In seconds. Patroni's own are 30 and 10: a leader is lost if its store is away for longer than the second.
SHORT = {"ttl": 6, "retry_timeout": 6}
USUAL = {"ttl": 30, "retry_timeout": 14}


def say(*values):
    print(*values, flush=True)


def member(name, times=SHORT):
    # use_proxies: stays with this endpoint, and does not continue with the addresses of etcd's members.
    return get_dcs({"etcd3": {"hosts": [sys.argv[1]], "use_proxies": True}, "name": name, **COMMON, **times})


def touch(dcs):
    return dcs.touch_member({"conn_url": f"postgres://{dcs._name}", "state": "running", "role": "replica"})


def woken(dcs, action):
    """Whether a wait of 30 s for changes has ended, and what the action returned."""
    dcs.event.clear()
    ended = []
    waiting = threading.Thread(target=lambda: ended.append(dcs.watch(None, 30)))
    waiting.start()
    done = action()
    waiting.join()
    return ended[0], done


def leader_of(dcs):
    leader = dcs.get_cluster().leader
    return leader.name if leader else None


def seen(dcs, condition):
    """The first cluster for which it holds: a member's own copy follows a watch."""
    while not condition(cluster := dcs.get_cluster()):
        time.sleep(0.02)
    return cluster


def steps():
    a, b = member("a"), member("b")
    say("initialized", bool(a.initialize(True, "123")), bool(b.initialize(True, "456")))
    say("touched", touch(a), touch(b), touch(a))
    cluster = seen(b, lambda found: len(found.members) == 2)
    say("members", sorted(each.name for each in cluster.members), cluster.initialize, cluster.is_unlocked())

    both = {}

    def acquire(dcs):
        both[dcs._name] = bool(dcs.attempt_to_acquire_leader())

    racing = [threading.Thread(target=acquire, args=(each,)) for each in (a, b)]
    for each in racing:
        each.start()
    for each in racing:
        each.join()
    say("one of two became leader", sorted(both.values()))
    winner, loser = (a, b) if both["a"] else (b, a)
    seen(loser, lambda found: found.leader)
    say("both know it", leader_of(winner) == leader_of(loser) == winner._name)
    say("refused", bool(loser.attempt_to_acquire_leader()))
    for _ in range(3):
        say("updated", bool(winner.update_leader(winner.get_cluster(), 100)))
        time.sleep(2)
    say("leader after a TTL", leader_of(loser) == winner._name)

    say("config", bool(a.set_config_value('{"ttl": 6}')), seen(b, lambda found: found.config).config.data)
    version = a.get_cluster().config.version
    say("config at a version", bool(a.set_config_value('{"ttl": 7}', version)), bool(b.set_config_value("{}", version)))
    say("history", bool(a.set_history_value('[[1, 2, "x"]]')), seen(b, lambda found: found.history).history.lines)
    say("sync", bool(a.write_sync_state("a", ["b"], None)), seen(b, lambda found: not found.sync.is_empty).sync.leader)
    synced = b.get_cluster().sync.version
    say("sync at a version", bool(a.write_sync_state("a", [], None, version=synced)), bool(b.write_sync_state("b", [], None, version=synced)))
    say("sync deleted", bool(b.delete_sync_state()), seen(a, lambda found: found.sync.is_empty).sync.leader)
    say("failover", bool(a.manual_failover("a", "b")), seen(b, lambda found: found.failover).failover.candidate)

    say("woken, deleted", woken(loser, lambda: bool(winner.delete_leader(winner.get_cluster().leader))))
    seen(loser, lambda found: found.is_unlocked())
    say("took over", bool(loser.attempt_to_acquire_leader()), leader_of(loser) == loser._name)
    seen(winner, lambda found: not found.is_unlocked())
    say("woken by the end of a lease", woken(winner, lambda: None)[0])
    seen(winner, lambda found: found.is_unlocked())
    say("took over after the lease", bool(winner.attempt_to_acquire_leader()), leader_of(winner) == winner._name)
    say("members after their leases", sorted(each.name for each in winner.get_cluster().members))
    say("deleted", bool(a.delete_cluster()), seen(b, lambda found: found.is_empty()).is_empty())


def take_part(name):
    """A loop as Patroni's: a leader renews its key, the others wait for a change and try to get it."""
    dcs = member(name, USUAL)
    role = None
    updates = 0
    while True:
        try:
            touch(dcs)
            cluster = dcs.get_cluster()
            leader = cluster.leader.name if cluster.leader else None
            if leader is None and dcs.attempt_to_acquire_leader():
                leader = name
            elif leader == name:
                leader = name if dcs.update_leader(cluster, 100) else None
                updates += 1
                say("updated", updates)
            now = "leader" if leader == name else f"replica of {leader}" if leader else role
        except Exception as error:
            # Patroni demotes a leader that has lost its store.
            now = f"without a store: {error!r}"
        if now != role:
            say(now)
        role = now
        dcs.watch(None, COMMON["loop_wait"])


if len(sys.argv) > 2:
    take_part(sys.argv[2])
else:
    steps()
    sys.stdout.flush()
    # Patroni's threads do not end.
    os._exit(0)
