"""Keeps a copy of all objects under a prefix, and prints each change: `python watch.py RESOURCE PREFIX`.

docs/other-languages.md says how to generate the code that it imports. $WATCH_FANOUT_ADDRESS is the service, 127.0.0.1:50051 by
default. The copy follows the service through restarts and network failures.
"""

import os
import random
import sys
import time

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from watchfanout.v1.list_watch_service_pb2 import EVENT_TYPE_DELETED, WatchRequest
from watchfanout.v1.list_watch_service_pb2_grpc import ListWatchServiceStub

# A resume point is of no use any more: the current state has to be read again.
RELIST = {"REVISION_TOO_OLD", "HISTORY_CHANGED", "HISTORY_LOST"}
# A retry does not help. Every other failure is retried, also one without a reason, such as a lost connection.
FATAL = {"INVALID_REQUEST", "UNKNOWN_RESOURCE", "PERMISSION_DENIED", "UNAUTHENTICATED"}
OPTIONS = [  # Pings notice a dead connection; a new one is tried at least every 5 s, not every 2 min.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.max_reconnect_backoff_ms", 5_000),
]


def apply(copy, events, relisted, revision):
    """Applies an atomic batch. The initial state is a batch too, and replaces all that the copy has."""
    if relisted:
        for key in copy.keys() - {event.object.key for event in events}:
            del copy[key]
            print(revision, "DELETED", key, flush=True)
    for event in events:
        key, before = event.object.key, copy.pop(event.object.key, None)
        if event.type == EVENT_TYPE_DELETED:
            print(event.object.mod_revision, "DELETED", key, flush=True)
            continue
        copy[key] = event.object
        if relisted and before == event.object:
            continue
        change = "MODIFIED" if before else "ADDED"
        print(event.object.mod_revision, change, key, event.object.value.decode(errors="replace"), flush=True)


def details(error):
    """The reason of an error, and the delay that the service asks for, in seconds."""
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    status = rpc_status.from_call(error)
    for detail in status.details if status else ():
        detail.Unpack(info) or detail.Unpack(retry)
    return info.reason, retry.retry_delay.ToTimedelta().total_seconds()


def watch(service, resource, prefix):
    copy, revision, history, failures = {}, None, "", 0
    while True:
        # Without a resume point: the current state first, then each change after it.
        request = WatchRequest(resource=resource, prefix=prefix, send_initial_events=revision is None)
        if revision is not None:
            request.after_revision, request.history_id = revision, history
        events, relisted, reason, delay, message = [], False, "", 0, "The stream has ended."
        since = None  # When the stream had its first response.
        try:
            for response in service.Watch(request):
                since = since or time.monotonic()
                history = response.history_id or history
                events += response.events
                relisted |= response.initial_events_end
                if response.HasField("revision"):  # It completes the batch, and is the resume point.
                    apply(copy, events, relisted, response.revision)
                    revision, events, relisted = response.revision, [], False
        except grpc.RpcError as error:
            reason, delay = details(error)
            message = error.details()
        if reason in FATAL:
            sys.exit(f"{reason}: {message}")
        if reason in RELIST:
            revision = None
        if since and time.monotonic() - since >= 10:  # It has worked.
            failures = 0
        delay = max(delay, random.uniform(0.5, 1) * min(0.2 * 2**failures, 10))
        failures = min(failures + 1, 10)
        then = "relisting" if revision is None else f"resuming after revision {revision}"
        print(f"{reason or 'DISCONNECTED'}: {message} {then} in {delay:.1f} s", file=sys.stderr, flush=True)
        time.sleep(delay)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("Usage: python watch.py RESOURCE PREFIX")
    address = os.environ.get("WATCH_FANOUT_ADDRESS", "127.0.0.1:50051")
    with grpc.insecure_channel(address, options=OPTIONS) as channel:
        watch(ListWatchServiceStub(channel), sys.argv[1], sys.argv[2])
