import { join } from "node:path";
import { messageOf } from "../../base/errors.ts";
import { EtcdServer, type EtcdServerOptions } from "../../etcd-server/etcd-server.ts";
import { PrivateFolder } from "./private-folder.ts";
import { StartError } from "./start-error.ts";

/** etcd's API over the embedded store, on a socket that only this process uses: the etcd API of clients is in front of it. */
export class EmbeddedEtcd {
  readonly #folder = privateFolder();
  #server: EtcdServer | undefined;

  /** Where it listens, once it serves. */
  get endpoint(): string {
    return `unix:${this.#path}`;
  }

  get #path(): string {
    return join(this.#folder.path, "etcd.sock");
  }

  /** Rejects with a StartError if the socket can't be made. */
  async serve(options: EtcdServerOptions): Promise<void> {
    const server = new EtcdServer(options);
    this.#server = server;
    try {
      await server.listen(this.#path);
    } catch (error) {
      throw unusableSocket(error);
    }
  }

  /** Idempotent. */
  close(): void {
    this.#server?.close();
    this.#folder.remove();
  }
}

/** Throws a StartError if it can't be made. */
function privateFolder(): PrivateFolder {
  try {
    return new PrivateFolder();
  } catch (error) {
    throw unusableSocket(error);
  }
}

function unusableSocket(error: unknown): StartError {
  return new StartError(
    `--etcd-api: can't make the socket of the embedded store: ${messageOf(error)}. Set XDG_RUNTIME_DIR or TMPDIR to a folder ` +
      "with a short path that this user can write to.",
    { cause: error },
  );
}
