import { randomUUID } from "node:crypto";
import { hasReason, otherHistory } from "../../base/errors.ts";

/**
 * Maps the history id of a server to the one that is used on this side.
 *
 * A client can't change the history id of a server. When this side detects that the history has changed, before the
 * server does, it uses an id of its own until the server changes its own: so the two histories are not confused.
 */
export class HistoryAlias {
  #alias: { readonly of: string; readonly id: string } | undefined;
  /** The last history id of the server; empty if not known. */
  #server = "";

  get server(): string {
    return this.#server;
  }

  /** Stores the server's history id, and returns the id for it on this side. */
  observe(server: string): string {
    this.#server = server;
    return this.#alias?.of === server ? this.#alias.id : server;
  }

  /** Returns the id of a history that is not `known`: an alias, if the server's id is still `known`. */
  renew(known: string, server: string): string {
    const id = this.observe(server);
    if (id !== known || id === "") return id;
    this.#alias = { of: server, id: randomUUID() };
    return this.#alias.id;
  }

  /** Returns the server's id for `id`. Throws HISTORY_CHANGED for the id that the alias has replaced. */
  atServer(id: string | undefined): string | undefined {
    if (id === undefined || this.#alias === undefined) return id;
    if (id === this.#alias.id) return this.#alias.of;
    if (id === this.#alias.of) throw otherHistory(id, this.#alias.id);
    return id;
  }

  /** Replaces the history id in a HISTORY_CHANGED error by the one on this side. */
  named(error: unknown): unknown {
    if (!hasReason(error, "HISTORY_CHANGED")) return error;
    const server = error.metadata["history_id"] ?? "";
    return server === "" ? error : error.with({ history_id: this.observe(server) });
  }
}
