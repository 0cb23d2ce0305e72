import { hasReason, otherHistory } from "../../base/errors.ts";
import { randomId } from "../../base/random-id.ts";

/** The alias of the history of an upstream, whose resources are all of one store. Undefined: there is no alias. */
export interface AliasedUpstream {
  alias?: { readonly of: string; readonly id: string };
}

/**
 * Maps the history id of a server to the one that is used on this side.
 *
 * A client can't change the history id of a server. When this side detects that the history has changed, before the
 * server does, it uses an id of its own until the server changes its own: so the two histories are not confused.
 */
export class HistoryAlias {
  readonly #upstream: AliasedUpstream;
  /** The last history id of the server; empty if not known. */
  #server = "";
  /** The id that the last watch asked for, if its server had another one; otherwise empty. */
  #refused = "";

  /** `upstream`: what the storages and the store of one upstream share, so that they agree on the id. */
  constructor(upstream: AliasedUpstream = {}) {
    this.#upstream = upstream;
  }

  get server(): string {
    return this.#server;
  }

  /** Stores the server's history id, and returns the id for it on this side. */
  observe(server: string): string {
    this.#server = server;
    const { alias } = this.#upstream;
    return alias?.of === server ? alias.id : server;
  }

  /** The same for a write. An empty id says nothing: the server could not determine its history then. */
  observeWrite(server: string): string {
    return server === "" ? "" : this.observe(server);
  }

  /** A watch that asked for a history of the servers ended with this error. */
  refused(asked: string, error: unknown): void {
    if (!hasReason(error, "HISTORY_CHANGED")) return;
    this.#refused = [asked, ""].includes(error.metadata["history_id"] ?? "") ? "" : asked;
  }

  /**
   * Returns the id of a history that is not `known`: an alias, if the server's id is still `known`. `isBehind`: the server is at
   * an earlier revision than this side has seen, which proves another history.
   */
  renew(known: string, server: string, isBehind: boolean): string {
    const id = this.observe(server);
    const refused = this.#refused;
    this.#refused = "";
    if (id !== known || id === "") return id;
    // Servers learn of a restore one after another. One that has not, or has already, ended the watch, and this one has the
    // history that the watch followed: nothing was proven against it.
    if (server === refused && !isBehind) return id;
    this.#upstream.alias = { of: server, id: randomId() };
    return this.#upstream.alias.id;
  }

  /** Returns the server's id for `id`. Throws HISTORY_CHANGED for the id that the alias has replaced. */
  atServer(id: string | undefined): string | undefined {
    const { alias } = this.#upstream;
    if (id === undefined || alias === undefined) return id;
    if (id === alias.id) return alias.of;
    if (id === alias.of) throw otherHistory(id, alias.id);
    return id;
  }

  /** Settles as the call does, with the history id in a HISTORY_CHANGED error replaced by the one on this side. */
  async naming<T>(call: Promise<T>): Promise<T> {
    try {
      return await call;
    } catch (error) {
      throw this.named(error);
    }
  }

  /** The same for an error. */
  named(error: unknown): unknown {
    if (!hasReason(error, "HISTORY_CHANGED")) return error;
    const server = error.metadata["history_id"] ?? "";
    return server === "" ? error : error.with({ history_id: this.observe(server) });
  }
}
