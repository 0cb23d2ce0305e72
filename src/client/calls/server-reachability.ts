import { connectivityState } from "@grpc/grpc-js";
import { stateOnceConnecting } from "../../base/channel-state.ts";
import type { Clock } from "../../base/clock.ts";
import type { Reachability } from "../../base/stream-backoff.ts";
import type { ClientCertificates } from "./client-certificates.ts";
import type { Endpoint, Endpoints } from "./endpoints.ts";

/** Minimum time between two notifications, in milliseconds. */
const minIntervalMs = 10_000;

/**
 * Notifies the paused streams of a client when one of its connections becomes ready. Without it nothing connects while
 * all streams pause: grpc-js makes a connection for a call, or if it is asked to.
 */
export class ServerReachability implements Reachability {
  readonly #endpoints: Endpoints;
  readonly #certificates: ClientCertificates | undefined;
  readonly #clock: Clock;
  /** Those of the streams that pause. */
  readonly #listeners = new Set<() => void>();
  readonly #observed = new Set<Endpoint>();
  #notifiedAt = Number.NEGATIVE_INFINITY;

  constructor(endpoints: Endpoints, certificates: ClientCertificates | undefined, clock: Clock) {
    this.#endpoints = endpoints;
    this.#certificates = certificates;
    this.#clock = clock;
  }

  get hasAlternative(): boolean {
    return this.#endpoints.hasAlternative;
  }

  onReady(listener: () => void): () => void {
    this.#listeners.add(listener);
    for (const endpoint of this.#endpoints.all) this.#observe(endpoint);
    return () => this.#listeners.delete(listener);
  }

  /** Connects, and observes the connection until no stream pauses. */
  #observe(endpoint: Endpoint): void {
    if (this.#listeners.size === 0 || this.#endpoints.isClosed || this.#observed.has(endpoint))
      return;
    this.#observed.add(endpoint);
    this.#change(endpoint).then(() => {
      this.#observed.delete(endpoint);
      this.#observe(endpoint);
    });
  }

  /** Resolves when the state of the connection has changed. */
  async #change(endpoint: Endpoint): Promise<void> {
    await this.#certificates?.refreshFor(endpoint.grpc, undefined);
    if (this.#endpoints.isClosed) return;
    const channel = endpoint.grpc.getChannel();
    const state = stateOnceConnecting(channel);
    if (state === connectivityState.SHUTDOWN) return;
    await new Promise<void>((resolve) => {
      channel.watchConnectivityState(state, Number.POSITIVE_INFINITY, () => resolve());
    });
    if (channel.getConnectivityState(false) === connectivityState.READY) this.#ready(endpoint);
  }

  #ready(endpoint: Endpoint): void {
    endpoint.connected();
    const now = this.#clock.now();
    if (this.#listeners.size === 0 || now - this.#notifiedAt < minIntervalMs) return;
    this.#notifiedAt = now;
    for (const listener of [...this.#listeners]) listener();
  }
}
