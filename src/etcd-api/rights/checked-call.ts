import { WatchFanoutError } from "../../base/errors.ts";
import { type KeyMethod, keyMethods, readKeyAccesses } from "../../etcd/wire/key-accesses.ts";
import type { Access } from "../../policy/access.ts";
import type { RawCall } from "../../server/calls/methods.ts";
import type { ServiceContext } from "../../server/calls/service-context.ts";
import type { FrameParts } from "../../wire/encode.ts";
import { prefixSize } from "../../wire/encode.ts";
import { statusOf } from "../../wire/errors.ts";
import { MessageReader } from "../../wire/message-reader.ts";
import { EtcdCall } from "../calls/etcd-call.ts";
import type { Rounds } from "../calls/rounds.ts";
import type { KeyRights } from "./key-rights.ts";

/** Maximum size of a request, in bytes: etcd's default --max-request-bytes and 512 KiB. */
const maxRequestBytes = 2 * 1024 ** 2;

/** Whether the requests at this path are checked; otherwise only callers with every right may use it. */
export function isKeyMethod(path: string): path is KeyMethod {
  return (keyMethods as readonly string[]).includes(path);
}

/** What a checked call is made of. */
export interface CheckedCallDeps {
  readonly path: KeyMethod;
  readonly mayWrite: boolean;
  readonly calls: Rounds<EtcdCall>;
  readonly rights: KeyRights;
  /** Handles the call with its request, with gRPC's framing, and the rights that it needs while it is open. */
  readonly proceed: (request: Buffer, access: readonly Access[]) => void;
}

/**
 * A call of a caller that may not do everything. Its whole request is read, until the client has half-closed the call, and
 * checked. Only then the call is handled, with exactly the message that was checked.
 */
export class CheckedCall extends EtcdCall {
  readonly #deps: CheckedCallDeps;
  readonly #received = new MessageReader();

  constructor(call: RawCall, context: ServiceContext, deps: CheckedCallDeps) {
    super(call, context, deps.calls, "etcd call", deps.path.slice(1), []);
    this.#deps = deps;
  }

  /** Reads the request. */
  start(): void {
    if (!this.open()) return;
    const { request } = this.call;
    request.on("data", this.#take);
    request.on("end", this.#finish);
  }

  drain(): void {}

  check(now: number): void {
    this.endIfLate(now);
  }

  protected override get waitsFor(): "nothing" {
    return "nothing";
  }

  protected override next(): FrameParts | undefined {
    return undefined;
  }

  protected override onClosed(): void {
    super.onClosed();
    const { request } = this.call;
    request.off("data", this.#take);
    request.off("end", this.#finish);
    this.#received.clear();
    // What the client still sends is read and dropped.
    if (!request.destroyed) request.resume();
  }

  readonly #take = (chunk: Buffer): void => {
    const received = this.#received;
    received.add(chunk);
    received.own();
    this.requestCharge?.resize(received.heldBytes);
    if (!this.isOver && received.received > maxRequestBytes) this.#refuse();
  };

  /** The client has sent everything. */
  readonly #finish = (): void => {
    if (this.isOver) return;
    const { bytes, size, received, isCompressed } = this.#received;
    const isOneMessage = received >= 0 && received === size && !isCompressed;
    const { path, rights, proceed } = this.#deps;
    const accesses = isOneMessage ? readKeyAccesses(path, bytes.subarray(prefixSize)) : undefined;
    // A lease may have keys of others, which its end deletes, and is kept alive by any caller that knows its id.
    if (accesses === undefined || accesses.leases.length > 0) {
      this.#refuse();
      return;
    }
    const access = rights.check(accesses.keys);
    if (access instanceof WatchFanoutError) {
      this.end(statusOf(access));
      return;
    }
    const request = Buffer.from(bytes);
    this.close();
    proceed(request, access);
  };

  #refuse(): void {
    this.end(statusOf(this.#deps.rights.refuseUnread(this.#deps.mayWrite)));
  }
}
