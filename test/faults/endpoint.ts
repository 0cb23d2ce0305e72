/** Where clients reach one replica: an address that stays when the replica does not. */
export interface Endpoint {
  readonly name: string;
  /** `url` is http://HOST:PORT. */
  readonly relay: { readonly url: string };
  /** Whether nothing is known against asking it. */
  readonly isWell: boolean;
  /** Adds a listener for failures that a client's keepalive would detect. Returns the function that removes it. */
  onDisturbed(listener: () => void): () => void;
}

/** Whether the endpoint has failed, and the listeners for that. */
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
