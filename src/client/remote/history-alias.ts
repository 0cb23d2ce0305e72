import { randomUUID } from "node:crypto";
import { hasReason, otherHistory } from "../../base/errors.ts";

/**
 * The id of a server's history, as it is called here.
 *
 * A client can't give the history of a server another id. Who has found that it is another one, before the
 * server has, calls it by a name of his own until the server does: so nobody takes the one for the other.
 */
export class HistoryAlias {
  #alias: { readonly of: string; readonly id: string } | undefined;
  /** The id that the server gave last; empty: none yet. */
  #server = "";

  get server(): string {
    return this.#server;
  }

  /** Takes note of the server's id, and says what it is called here. */
  heard(server: string): string {
    this.#server = server;
    return this.#alias?.of === server ? this.#alias.id : server;
  }

  /** What the history of this id is called that is not `known`: another name for it if that is what it has. */
  renew(known: string, server: string): string {
    const id = this.heard(server);
    if (id !== known || id === "") return id;
    this.#alias = { of: server, id: randomUUID() };
    return this.#alias.id;
  }

  /** The server's id for what is called `id` here. Throws HISTORY_CHANGED for what it was called before. */
  atServer(id: string | undefined): string | undefined {
    if (id === undefined || this.#alias === undefined) return id;
    if (id === this.#alias.id) return this.#alias.of;
    if (id === this.#alias.of) throw otherHistory(id, this.#alias.id);
    return id;
  }

  /** The error with the history that it names called as it is here. */
  named(error: unknown): unknown {
    if (!hasReason(error, "HISTORY_CHANGED")) return error;
    const server = error.metadata["history_id"] ?? "";
    return server === "" ? error : error.with({ history_id: this.heard(server) });
  }
}
