import type { ServerHttp2Stream } from "node:http2";
import type { Socket } from "node:net";
import { status } from "@grpc/grpc-js";
import { descriptors } from "../../wire/descriptors.ts";
import { methodOf } from "../calls/methods.ts";
import type { RawServices } from "../calls/raw-methods.ts";
import type { ServiceContext } from "../calls/service-context.ts";
import type { Connections } from "./connections.ts";
import { socketOf } from "./frames/framed-connection.ts";
import { statusCodeOf } from "./http2-stream.ts";

/** Counts the open calls of a server and of each connection, and reports each call to the observer. */
export class OpenCalls {
  readonly #context: ServiceContext;
  readonly #connections: Connections;
  readonly #rawServices: RawServices | undefined;
  #size = 0;
  #onIdle: (() => void) | undefined;

  constructor(
    context: ServiceContext,
    connections: Connections,
    rawServices: RawServices | undefined,
  ) {
    this.#context = context;
    this.#connections = connections;
    this.#rawServices = rawServices;
  }

  /** Counts a call until its stream is closed. */
  add(stream: ServerHttp2Stream, path: string, label: string = this.#labelOf(path)): void {
    const { session } = stream;
    const socket = session === undefined || session.destroyed ? undefined : socketOf(session);
    this.count(stream, socket, label, () => statusCodeOf(stream));
  }

  /** Counts a call until `closing` is closed. `codeOf`: the status that it has ended with; undefined: its client has ended it. */
  count(
    closing: { on(event: "close", listener: () => void): unknown },
    socket: Socket | undefined,
    label: string,
    codeOf: () => number | undefined,
  ): void {
    this.#size++;
    const onEnded = this.#observe(label, codeOf);
    const onClosed = socket === undefined ? undefined : this.#connections.opened(socket);
    const release = (): void => {
      onClosed?.();
      this.#size--;
      if (this.#size === 0) this.#onIdle?.();
      onEnded?.();
    };
    closing.on("close", () => this.#context.callClosings.add(release));
  }

  /** Calls `listener` each time that no call is open any more; at once if none is open. */
  onIdle(listener: () => void): void {
    this.#onIdle = listener;
    if (this.#size === 0) listener();
  }

  /** A client may ask for any path. Paths that are not methods count as one, which bounds the label's values. */
  #labelOf(path: string): string {
    if (this.#context.observer === undefined) return "";
    const own = descriptors.inputs.has(path) ? methodOf(path) : undefined;
    return own ?? this.#rawServices?.methodAt(path)?.label ?? "unknown";
  }

  /** Reports a call to the observer. Returns what reports its end. */
  #observe(method: string, codeOf: () => number | undefined): (() => void) | undefined {
    const { observer, clock } = this.#context;
    if (observer === undefined) return undefined;
    const started = clock.now();
    observer.started(method);
    return () => {
      const code = status[codeOf() ?? status.CANCELLED] ?? "UNKNOWN";
      observer.ended(method, code, clock.now() - started);
    };
  }
}
