import type { Relay } from "./relay.ts";

/** Where clients reach one replica: a relay in front of it, which stays where it is when that does not. */
export interface Endpoint {
  readonly name: string;
  readonly relay: Relay;
  /** Told when something has happened that a client's keepalive would tell it. Returns what ends that. */
  onDisturbed(listener: () => void): () => void;
}

/** Those who want to know of a disturbance. */
export class Disturbance {
  readonly #listeners = new Set<() => void>();

  on(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  happened(): void {
    for (const listener of [...this.#listeners]) listener();
  }
}
