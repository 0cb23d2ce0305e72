import type { ServerHttp2Stream } from "node:http2";
import { status } from "@grpc/grpc-js";
import type { Clock } from "../../base/clock.ts";
import { descriptors } from "../../wire/descriptors.ts";
import type { CallClosings } from "../calls/call-closings.ts";
import type { RpcObserver } from "../calls/call-context.ts";
import { methodOf } from "../calls/methods.ts";
import type { RawServices } from "../calls/raw-methods.ts";
import type { Connections } from "./connections.ts";
import { statusCodeOf } from "./http2-stream.ts";

/** Counts the open calls of a server and of each connection, and reports each call to the observer. */
export class OpenCalls {
  readonly #clock: Clock;
  readonly #closings: CallClosings;
  readonly #connections: Connections;
  readonly #observer: RpcObserver | undefined;
  readonly #relayed: RawServices | undefined;
  #size = 0;
  #onIdle: (() => void) | undefined;

  constructor(
    clock: Clock,
    closings: CallClosings,
    connections: Connections,
    observer: RpcObserver | undefined,
    relayed: RawServices | undefined,
  ) {
    this.#clock = clock;
    this.#closings = closings;
    this.#connections = connections;
    this.#observer = observer;
    this.#relayed = relayed;
  }

  /** Counts a call until its stream is closed. */
  add(stream: ServerHttp2Stream, path: string): void {
    this.#size++;
    const onEnded = this.#observe(stream, path);
    const { session } = stream;
    const onClosed = session === undefined ? undefined : this.#connections.opened(session);
    const release = (): void => {
      onClosed?.();
      this.#size--;
      if (this.#size === 0) this.#onIdle?.();
      onEnded?.();
    };
    stream.on("close", () => this.#closings.add(release));
  }

  /** Calls `listener` each time that no call is open any more; at once if none is open. */
  onIdle(listener: () => void): void {
    this.#onIdle = listener;
    if (this.#size === 0) listener();
  }

  /** Reports a call to the observer. Returns what reports its end. */
  #observe(stream: ServerHttp2Stream, path: string): (() => void) | undefined {
    const observer = this.#observer;
    if (observer === undefined) return undefined;
    // A client may ask for any path. Paths that are not methods count as one, which bounds the label's values.
    const own = descriptors.inputs.has(path) ? methodOf(path) : undefined;
    const method = own ?? this.#relayed?.methodAt(path)?.label ?? "unknown";
    const started = this.#clock.now();
    observer.started(method);
    return () => {
      const code = status[statusCodeOf(stream) ?? status.CANCELLED] ?? "UNKNOWN";
      observer.ended(method, code, this.#clock.now() - started);
    };
  }
}
