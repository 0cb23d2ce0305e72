import { status } from "@grpc/grpc-js";
import { WatchFanoutError } from "../base/errors.ts";
import { expired, slowConsumer } from "../cacher/request/errors.ts";
import type { Access } from "../policy/access.ts";
import { MessageSender, type SlowEnd } from "../server/calls/message-sender.ts";
import { refused, toClientError, tooMuchRetained } from "../server/calls/refusals.ts";
import type { ServerCall } from "../server/calls/server-call.ts";
import type { ServiceContext } from "../server/calls/service-context.ts";
import { freeRetainedBytes } from "../server/calls/unary-call.ts";
import type { Reservation } from "../server/kernel/ledger.ts";
import { nextStreamId, type OpenStream } from "../server/kernel/open-streams.ts";
import { type FrameParts, prefixSize, sizeOf } from "../wire/encode.ts";
import { statusOf, type WireStatus } from "../wire/errors.ts";
import type { ServedType } from "./served-types.ts";
import { XdsSubscription } from "./subscription.ts";
import type { TypeName } from "./types.ts";
import { Warming } from "./warming.ts";

/** What a stream is opened with. */
export interface XdsStreamOptions {
  readonly method: string;
  readonly isDelta: boolean;
  /** The types, in the order in which they are sent. */
  readonly types: readonly ServedType[];
  /** When it reaches the maximum age, in the clock's milliseconds; undefined: never. */
  readonly expiresAt: number | undefined;
  readonly onClosed: (stream: XdsStream) => void;
}

/**
 * A stream of discovery. What its subscriptions have to send is sent one response at a time, in the order of their types. For a
 * client that does not read, nothing waits here but which names have changed.
 */
export class XdsStream extends MessageSender implements OpenStream {
  readonly id = nextStreamId();
  readonly streamKind = "xds";
  readonly openedAt: number;
  readonly isDelta: boolean;
  readonly #options: XdsStreamOptions;
  /** By the place of their types. Absent: the client has not asked for the type. */
  readonly #subscriptions: (XdsSubscription | undefined)[] = [];
  protected override readonly isOneMessage = true;
  readonly #warming: Warming;
  /** The charge for the names that it asks for. */
  #retained: Reservation | undefined;
  /** The client's id for itself: a hint for operators, no identity. */
  node = "";

  constructor(call: ServerCall, context: ServiceContext, options: XdsStreamOptions) {
    super(call, context);
    this.#options = options;
    this.isDelta = options.isDelta;
    this.openedAt = context.clock.now();
    this.#warming = new Warming(context.clock, () => this.pump());
    call.onOver(() => this.close());
  }

  /** Number of names that it asks for. */
  get names(): number {
    let count = 0;
    for (const subscription of this.#subscriptions) count += subscription?.size ?? 0;
    return count;
  }

  /** What it asks for. Computed, since only a change of the policy needs it. */
  get access(): readonly Access[] | undefined {
    if (!this.context.authorizer.hasPolicy) return undefined;
    const all: Access[] = [];
    this.#subscriptions.forEach((subscription, at) => {
      const type = this.#options.types[at];
      if (subscription === undefined || type === undefined) return;
      if (subscription.isOfAll) all.push(type.accessToAll);
      for (const name of subscription.names.keys()) all.push(type.accessTo(name));
    });
    return all;
  }

  /** Counts it until it has ended. */
  open(): void {
    this.context.streams.add(this);
  }

  /** The subscription of the type at this place, which may be new. */
  subscription(at: number, type: ServedType): XdsSubscription {
    const known = this.#subscriptions[at];
    if (known !== undefined) return known;
    const made = new XdsSubscription(type.catalog, this);
    this.#subscriptions[at] = made;
    return made;
  }

  /** The client has confirmed or refused a response. */
  answered(): void {
    this.#warming.confirmed(this.#of("cds")?.confirmed ?? 0);
  }

  /** Charges what it retains: its names. */
  retain(): void {
    const { retainedRequests } = this.context;
    let bytes = 0;
    for (const subscription of this.#subscriptions) bytes += subscription?.retainedBytes ?? 0;
    if (this.#retained === undefined && bytes <= freeRetainedBytes) return;
    this.#retained ??= retainedRequests.reserve(this.connection, 0, () =>
      this.evict(tooMuchRetained(retainedRequests)),
    );
    this.#retained.resize(bytes);
  }

  /** Called about once a second. */
  check(): void {
    const { expiresAt } = this.#options;
    if (expiresAt !== undefined && this.context.clock.now() >= expiresAt)
      this.endBecause(expired());
  }

  evict(error: WatchFanoutError): void {
    this.end(statusOf(error));
  }

  endBecause(cause: unknown): void {
    const { logger } = this.context;
    this.evict(toClientError(cause, this.#options.method, logger, this.call));
  }

  /** The client sends no more requests. */
  halfClosed(): void {
    this.end(refused(status.OK, ""));
  }

  protected override get waitsFor(): "nothing" | "room" {
    return this.#pending() === undefined ? "nothing" : "room";
  }

  protected override next(): FrameParts | undefined {
    for (let next = this.#pending(); next !== undefined; next = this.#pending()) {
      const response = next.take();
      if (response === "lost") {
        this.evict(tooFarBehind());
        return undefined;
      }
      if (response === undefined) continue;
      const { type, resources } = response;
      if (type.name === "cds" && resources.length > 0) this.#warming.begin(response.number);
      const frames = response.frames(this.isDelta);
      this.context.observer?.sent(this.#options.method, 1, sizeOf(frames) - prefixSize);
      return frames;
    }
    return undefined;
  }

  protected override slowStatus(end: SlowEnd): WireStatus | undefined {
    if (end === "unreachable") return undefined;
    const accepted = `nothing from the stream for ${this.context.limits.responseFlushMs / 1_000} s`;
    return statusOf(
      slowConsumer(`The client accepts ${end === "stalled" ? accepted : "too little"}.`),
    );
  }

  protected override onFailed(error: unknown): void {
    if (!this.isOver) this.endBecause(error);
  }

  protected override onClosed(): void {
    this.context.streams.delete(this);
    this.#retained?.release();
    this.#warming.close();
    for (const subscription of this.#subscriptions) subscription?.close();
    this.#options.onClosed(this);
  }

  /**
   * The first subscription that has something to send now: what refers to clusters waits until those are warm, and clusters are
   * removed behind everything else, also behind what a client that has just come back has yet to ask for.
   */
  #pending(): XdsSubscription | undefined {
    let removal: XdsSubscription | undefined;
    for (const subscription of this.#subscriptions) {
      if (subscription?.hasPending !== true) continue;
      const { name, refersToClusters } = subscription.catalog.type;
      if (refersToClusters && this.#warming.isActive(this.#of("eds"))) continue;
      if (name === "cds" && subscription.hasOnlyRemovals) removal = subscription;
      else return subscription;
    }
    if (removal !== undefined && this.#warming.isActive(this.#of("eds"))) return undefined;
    return removal;
  }

  #of(name: TypeName): XdsSubscription | undefined {
    const at = this.#options.types.findIndex(({ type }) => type.name === name);
    return this.#subscriptions[at];
  }
}

function tooFarBehind(): WatchFanoutError {
  return new WatchFanoutError(
    "SLOW_CONSUMER",
    "The client is so far behind that what was removed meanwhile is no longer known. Open the stream again with the versions that " +
      "you have.",
  );
}
