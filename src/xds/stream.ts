import { status } from "@grpc/grpc-js";
import { WatchFanoutError } from "../base/errors.ts";
import { expired, slowConsumer } from "../cacher/request/errors.ts";
import type { Access } from "../policy/access.ts";
import { MessageSender, type SlowEnd } from "../server/calls/message-sender.ts";
import { endingOf, refused, tooMuchRetained } from "../server/calls/refusals.ts";
import type { ServerCall } from "../server/calls/server-call.ts";
import { expiryOf, type ServiceContext } from "../server/calls/service-context.ts";
import { freeRetainedBytes } from "../server/calls/unary-call.ts";
import type { Reservation } from "../server/kernel/ledger.ts";
import { nextStreamId, type OpenStream } from "../server/kernel/open-streams.ts";
import type { Rounds } from "../server/kernel/rounds.ts";
import { type FrameParts, prefixSize, sizeOf } from "../wire/encode.ts";
import { statusOf, type WireStatus } from "../wire/errors.ts";
import type { ServedType } from "./served-types.ts";
import { XdsSubscription } from "./subscription.ts";
import type { TypeName } from "./types.ts";
import { Warming } from "./warming.ts";

/** A method, and what its streams share. */
export interface XdsMethod {
  readonly context: ServiceContext;
  /** In the order in which they are sent. */
  readonly types: readonly ServedType[];
  /** The open streams of all methods. */
  readonly streams: Rounds<XdsStream>;
  readonly name: string;
  readonly isDelta: boolean;
  /** The type that requests need not name; empty: they have to. */
  readonly url: string;
}

/**
 * A stream of discovery. What its subscriptions have to send is sent one response at a time, in the order of their types. For a
 * client that does not read, nothing waits here but which names have changed.
 */
export class XdsStream extends MessageSender implements OpenStream {
  readonly id = nextStreamId();
  readonly streamKind = "xds";
  readonly openedAt: number;
  /** When it reaches its maximum age. */
  readonly #expiresAt: number;
  readonly method: XdsMethod;
  /** Of the types that the client has asked for. */
  readonly #subscriptions = new Map<TypeName, XdsSubscription>();
  protected override readonly isOneMessage = true;
  readonly #warming: Warming;
  /** The charge for the names that it asks for. */
  #retained: Reservation | undefined;
  /** The client's id for itself: a hint for operators, no identity. */
  node = "";

  constructor(call: ServerCall, method: XdsMethod) {
    const { context } = method;
    super(call, context);
    this.method = method;
    this.openedAt = context.clock.now();
    this.#expiresAt = expiryOf(context) ?? Infinity;
    this.#warming = new Warming(context.clock, () => this.pump());
    call.onOver(() => this.close());
    context.streams.add(this);
    method.streams.add(this);
  }

  get isDelta(): boolean {
    return this.method.isDelta;
  }

  /** Number of names that it asks for. */
  get names(): number {
    let count = 0;
    for (const { names } of this.#subscriptions.values()) count += names.size;
    return count;
  }

  /** What it asks for. Computed, since only a change of the policy needs it. */
  get access(): readonly Access[] | undefined {
    if (!this.context.authorizer.hasPolicy) return undefined;
    const all: Access[] = [];
    for (const type of this.method.types) {
      const { isOfAll = false, names } = this.#subscriptions.get(type.type.name) ?? {};
      if (isOfAll) all.push(type.accessToAll);
      for (const name of names?.keys() ?? []) all.push(type.accessTo(name));
    }
    return all;
  }

  /** The subscription of a type, which may be new. */
  subscription({ type, catalog }: ServedType): XdsSubscription {
    const known = this.#subscriptions.get(type.name);
    if (known !== undefined) return known;
    const made = new XdsSubscription(catalog, this);
    this.#subscriptions.set(type.name, made);
    return made;
  }

  /** The client has confirmed or refused a response. */
  answered(): void {
    this.#warming.confirmed(this.#subscriptions.get("cds")?.confirmed ?? 0);
  }

  /** Charges what it retains: its names. */
  retain(): void {
    const { retainedRequests } = this.context;
    let bytes = 0;
    for (const { retainedBytes } of this.#subscriptions.values()) bytes += retainedBytes;
    if (this.#retained === undefined && bytes <= freeRetainedBytes) return;
    this.#retained ??= retainedRequests.reserve(this.connection, 0, () =>
      this.evict(tooMuchRetained(retainedRequests)),
    );
    this.#retained.resize(bytes);
  }

  /** Called about once a second. */
  check(): void {
    if (this.context.clock.now() >= this.#expiresAt) this.endBecause(expired());
  }

  evict(error: WatchFanoutError): void {
    this.end(statusOf(error));
  }

  endBecause(cause: unknown): void {
    this.end(endingOf(cause, this.method.name, this.context.logger, this.call));
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
      if (type.name === "cds" && resources.length > 0) {
        this.#warming.begin(response.number, this.#subscriptions.get("eds"));
      }
      const frames = response.frames(this.isDelta);
      this.context.observer?.sent(this.method.name, 1, sizeOf(frames) - prefixSize);
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
    this.method.streams.delete(this);
    this.#retained?.release();
    this.#warming.close();
    for (const subscription of this.#subscriptions.values()) subscription.close();
  }

  /**
   * The first subscription that has something to send now: what refers to clusters waits until those are warm, and clusters are
   * removed behind everything else, and not while the client warms others.
   */
  #pending(): XdsSubscription | undefined {
    const endpoints = this.#subscriptions.get("eds");
    let removal: XdsSubscription | undefined;
    for (const { type } of this.method.types) {
      const { name, refersToClusters } = type;
      const subscription = this.#subscriptions.get(name);
      if (subscription?.hasPending !== true) continue;
      if (refersToClusters && this.#warming.isActive(endpoints)) continue;
      if (name === "cds" && subscription.hasOnlyRemovals) removal = subscription;
      else return subscription;
    }
    return removal !== undefined && this.#warming.isActive(endpoints) ? undefined : removal;
  }
}

function tooFarBehind(): WatchFanoutError {
  return new WatchFanoutError(
    "SLOW_CONSUMER",
    "The client is so far behind that what was removed meanwhile is no longer known. Open the stream again with the versions that " +
      "you have.",
  );
}
