import { constants, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import type { Socket } from "node:net";
import { status } from "@grpc/grpc-js";
import { descriptors } from "../../wire/descriptors.ts";
import { type Methods, methodOf, type RawServices } from "../calls/methods.ts";
import type { ServiceContext } from "../calls/service-context.ts";
import type { CallProtocol } from "../calls/service-options.ts";
import type { CallerLimits } from "../limits/caller-limits.ts";
import type { CallOwner } from "../limits/callers.ts";
import type { Connections } from "./connections.ts";
import { isEnding, socketOf } from "./frames/framed-connection.ts";
import { statusCodeOf } from "./http2-stream.ts";

/** What a call is counted as. */
export interface CountedCall {
  readonly protocol: CallProtocol;
  /** The path of its method. */
  readonly path: string;
  /** Its method in metrics. Default: that at its path. */
  readonly label?: string | undefined;
}

/** Counts the open calls of a server and of each connection, and reports each call to the observer. */
export class OpenCalls {
  readonly #context: ServiceContext;
  readonly #connections: Connections;
  readonly #rawServices: RawServices | undefined;
  readonly #methods: Pick<Methods, "streaming">;
  #size = 0;
  #onIdle: (() => void) | undefined;

  constructor(
    context: ServiceContext,
    connections: Connections,
    rawServices: RawServices | undefined,
    methods: Pick<Methods, "streaming">,
  ) {
    this.#context = context;
    this.#connections = connections;
    this.#rawServices = rawServices;
    this.#methods = methods;
  }

  /** Counts a call until its stream is closed. */
  add(stream: ServerHttp2Stream, call: CountedCall): void {
    const { session } = stream;
    const socket = session === undefined || session.destroyed ? undefined : socketOf(session);
    this.count(stream, socket, call, () => statusCodeOf(stream));
  }

  /** Counts a call until `closing` is closed. `codeOf`: the status that it has ended with; undefined: its client has ended it. */
  count(
    closing: { on(event: "close", listener: () => void): unknown },
    socket: Socket | undefined,
    { protocol, path, label = this.#labelOf(path) }: CountedCall,
    codeOf: () => number | undefined,
  ): void {
    this.#size++;
    const onEnded = this.#observe(label, protocol, codeOf);
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
    const ofDoor = this.#methods.streaming.get(path)?.name;
    return own ?? ofDoor ?? this.#rawServices?.methodAt(path)?.label ?? "unknown";
  }

  /** Reports a call to the observer. Returns what reports its end. */
  #observe(
    method: string,
    protocol: CallProtocol,
    codeOf: () => number | undefined,
  ): (() => void) | undefined {
    const { observer, clock } = this.#context;
    if (observer === undefined) return undefined;
    const started = clock.now();
    observer.started(method, protocol);
    return () => {
      const code = status[codeOf() ?? status.CANCELLED] ?? "UNKNOWN";
      observer.ended(method, code, clock.now() - started);
    };
  }
}

/**
 * Counts a call when it is cancelled on the connection of a trusted proxy. On any other connection Node.js closes the
 * connection beyond its bound. On one of a proxy it allows any number, since one client could end the calls of all others
 * behind the proxy: there each identity has the same bound, and beyond it its calls are refused. Calls that the server resets,
 * since their client is stuck, count as well. How fast calls are opened, and with that cancelled, is bounded by
 * `StreamPacing`.
 *
 * `forwarded` is the owner of the call if the proxy forwards its identity.
 */
export function countIfCancelled(
  callerLimits: CallerLimits,
  stream: ServerHttp2Stream,
  session: ServerHttp2Session,
  forwarded: CallOwner | undefined,
): void {
  const { callers } = callerLimits;
  if (!callers.isForwarder(session)) return;
  const onClose = (): void => {
    // Not if its connection ends: then all of its calls do.
    if (isEnding(session)) return;
    const isReset = stream.aborted || stream.rstCode !== constants.NGHTTP2_NO_ERROR;
    if (!isReset) return;
    callerLimits.cancelled((forwarded ?? callers.expectedOn(session)).caller);
  };
  if (stream.destroyed) onClose();
  else stream.once("close", onClose);
}
