import { anonymous } from "../../../src/identity/identity.ts";
import type { CallRecord } from "../../../src/server/calls/audit.ts";
import type { CallSpan } from "../../../src/server/calls/call-span.ts";
import type { ServerCall } from "../../../src/server/calls/server-call.ts";
import type { CallOwner } from "../../../src/server/limits/callers.ts";
import type { FrameParts } from "../../../src/wire/encode.ts";
import type { WireStatus } from "../../../src/wire/errors.ts";
import { ownerOf } from "../limits/test-callers.ts";

/** A call that records how it was ended. */
export class WaitingCall implements ServerCall {
  readonly connection: object;
  readonly owner: CallOwner;
  readonly identity = anonymous;
  readonly address = "";
  readonly traceId = undefined;
  span: CallSpan | undefined;
  record: CallRecord | undefined;
  via = undefined;
  readonly requestBytes = 0;
  readonly headerBytes = 0;
  readonly deadline = undefined;
  isOver = false;
  ended: WireStatus | undefined;
  #onOver: () => void = () => {};

  constructor(connection: object) {
    this.connection = connection;
    this.owner = ownerOf(connection);
  }

  onOver(listener: () => void): void {
    this.#onOver = listener;
  }

  send(): void {}
  sendParts(): void {}
  sendAtOnce(): boolean {
    return false;
  }

  withdraw(): boolean {
    return false;
  }

  onClosed(): void {}
  closeConnection(): void {}

  respond(): FrameParts {
    return [];
  }

  end(status: WireStatus): void {
    this.ended = status;
    this.record?.end(status.code);
  }

  /** Ends the call as a reset by the client does. */
  reset(): void {
    this.isOver = true;
    this.#onOver();
  }
}
