import type { Clock } from "./clock.ts";
import { stateOnceConnecting } from "./grpc-channel.ts";
import { type Channel, connectivity } from "./grpc-codes.ts";
import type { Reachability } from "./stream-backoff.ts";

/** Minimum time between two notifications, in milliseconds. */
const minIntervalMs = 10_000;

/** A server whose connection is observed. */
export interface ObservedServer {
  /** Its channel, as a call would use it; undefined: the client is closed. */
  channel(): Promise<Channel | undefined>;
  /** Called each time a connection becomes ready. */
  onConnected?(): void;
}

interface ServerReachabilityOptions {
  /** Those of now. */
  readonly servers: () => readonly ObservedServer[];
  /** As that of Reachability. Default: false. */
  readonly hasAlternative?: (() => boolean) | undefined;
  readonly clock: Clock;
}

/**
 * Notifies the paused streams of a client when one of its connections becomes ready. Without it nothing connects while
 * all streams pause: grpc-js makes a connection for a call, or if it is asked to.
 */
export class ServerReachability implements Reachability {
  readonly #options: ServerReachabilityOptions;
  /** Those of the streams that pause. */
  readonly #listeners = new Set<() => void>();
  readonly #observed = new Set<ObservedServer>();
  #notifiedAt = Number.NEGATIVE_INFINITY;

  constructor(options: ServerReachabilityOptions) {
    this.#options = options;
  }

  get hasAlternative(): boolean {
    return this.#options.hasAlternative?.() === true;
  }

  onReady(listener: () => void): () => void {
    this.#listeners.add(listener);
    for (const server of this.#options.servers()) {
      if (!this.#observed.has(server)) void this.#observe(server);
    }
    return () => this.#listeners.delete(listener);
  }

  /** Connects, and observes the connection until no stream pauses. */
  async #observe(server: ObservedServer): Promise<void> {
    this.#observed.add(server);
    while (this.#listeners.size > 0 && (await this.#change(server)));
    this.#observed.delete(server);
  }

  /** Resolves when the state of the connection has changed, to false if it is closed for good. */
  async #change(server: ObservedServer): Promise<boolean> {
    const channel = await server.channel();
    const state = channel && stateOnceConnecting(channel);
    if (channel === undefined || state === connectivity.SHUTDOWN) return false;
    await new Promise<void>((resolve) => {
      channel.watchConnectivityState(state as number, Number.POSITIVE_INFINITY, () => resolve());
    });
    if (channel.getConnectivityState(false) === connectivity.READY) this.#ready(server);
    return true;
  }

  #ready(server: ObservedServer): void {
    server.onConnected?.();
    const now = this.#options.clock.now();
    if (this.#listeners.size === 0 || now - this.#notifiedAt < minIntervalMs) return;
    this.#notifiedAt = now;
    for (const listener of [...this.#listeners]) listener();
  }
}
