import { Metadata } from "@grpc/grpc-js";
import { AuthClient } from "etcd3";
import type { Logger } from "pino";
import { abortable } from "../../base/wait.ts";
import { authNotEnabled, isServiceError, isStaleToken, says } from "./errors.ts";
import type { CallLimits, Member } from "./member.ts";

interface Credentials {
  readonly username: string;
  readonly password: string;
}

/** The token that authenticates calls to etcd: requested once, shared by all calls, renewed when etcd refuses it. */
export class AuthTokens {
  /** Undefined: calls have no token. */
  readonly #credentials: Credentials | undefined;
  readonly #logger: Logger;
  /** Ends the request for a token. Callers' own signals do not, as others may wait for the same token. */
  readonly #closing: AbortSignal;
  #token: Promise<string | undefined> | undefined;

  constructor(credentials: Credentials | undefined, logger: Logger, closing: AbortSignal) {
    this.#credentials = credentials;
    this.#logger = logger;
    this.#closing = closing;
  }

  /** The next call requests a new token. */
  forget(): void {
    this.#token = undefined;
  }

  /** Calls with the current token, and again with a new one if etcd refuses that. */
  async call<Result>(
    member: Member,
    limits: CallLimits,
    call: (metadata: Metadata) => Promise<Result>,
  ): Promise<Result> {
    const metadata = await this.metadata(member, limits);
    try {
      return await call(metadata);
    } catch (error) {
      if (this.#credentials === undefined || !isStaleToken(error)) throw error;
      this.forget();
      return call(await this.metadata(member, limits));
    }
  }

  /** The metadata of one call, with the token if there is one. */
  async metadata(member: Member, limits: CallLimits): Promise<Metadata> {
    const metadata = new Metadata();
    if (this.#credentials === undefined) return metadata;
    this.#token ??= this.#authenticate(member, limits, this.#credentials);
    const requested = this.#token;
    try {
      const token = await abortable(requested, limits.signal);
      if (token !== undefined) metadata.set("token", token);
      return metadata;
    } catch (error) {
      if (this.#token === requested && error !== limits.signal?.reason) this.forget();
      throw error;
    }
  }

  /** Resolves to undefined if etcd's authentication is disabled. */
  async #authenticate(
    member: Member,
    { deadline }: CallLimits,
    { username: name, password }: Credentials,
  ): Promise<string | undefined> {
    try {
      const limits = { deadline, signal: this.#closing };
      const auth = new AuthClient(member.callable(new Metadata(), limits));
      return (await auth.authenticate({ name, password })).token;
    } catch (error) {
      if (!isServiceError(error) || !says(error.details, authNotEnabled)) throw error;
      this.#logger.warn(
        { username: name },
        "etcd does not ask for the user and password configured",
      );
      return undefined;
    }
  }
}
