import type { Relay } from "./relay.ts";

/** Where clients reach one replica: a relay in front of it, which stays where it is when that does not. */
export interface Endpoint {
  readonly name: string;
  readonly relay: Relay;
  /** Whether nothing is known against asking it. */
  readonly isWell: boolean;
  /** Told when something has happened that a client's keepalive would tell it. Returns what ends that. */
  onDisturbed(listener: () => void): () => void;
}

/** Whether something is the matter, and those who want to know of it. */
export class Disturbance {
  isWell = true;
  readonly #listeners = new Set<() => void>();

  on(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  happened(): void {
    this.isWell = false;
    for (const listener of [...this.#listeners]) listener();
  }
}
