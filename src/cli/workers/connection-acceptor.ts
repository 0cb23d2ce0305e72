import {
  type AddressInfo,
  createServer,
  type ListenOptions,
  type Server,
  type Socket,
} from "node:net";
import type { Clock } from "../../base/clock.ts";
import type { Config, ListenAddress } from "../../config/config.ts";
import { makeUnixSocket } from "../../server/grpc-js/unix-socket.ts";

/** Maximum number of connections that the kernel holds until they are accepted. It may have a lower bound of its own. */
const backlog = 4_096;

/** Accepts connections on the address of the service, and reads nothing from them. */
export class ConnectionAcceptor {
  /** With the port that was bound. */
  readonly address: ListenAddress;
  readonly #server: Server;
  readonly #onClose: () => void;

  private constructor(server: Server, address: ListenAddress, onClose: () => void) {
    this.#server = server;
    this.address = address;
    this.#onClose = onClose;
  }

  /**
   * Listens. `onConnection` is called with each connection, and closes it. Rejects with the error of Node.js, or with a
   * sentence, if the address can't be used.
   */
  static async listen(
    listen: Config["listen"],
    clock: Clock,
    onConnection: (socket: Socket) => void,
  ): Promise<ConnectionAcceptor> {
    const server = createServer({ pauseOnConnect: true, noDelay: true }, onConnection);
    if (!("path" in listen)) {
      const { host } = listen;
      await bind(server, { ...listen, backlog });
      const { port } = server.address() as AddressInfo;
      return new ConnectionAcceptor(server, { host, port }, () => {});
    }
    const file = await makeUnixSocket(listen, clock, (path) => bind(server, { path, backlog }));
    return new ConnectionAcceptor(server, { path: listen.path }, () => file.remove());
  }

  /** Accepts no more connections. The accepted ones stay open. Idempotent. */
  close(): void {
    this.#onClose();
    this.#server.close();
  }
}

function bind(server: Server, options: ListenOptions): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(options, () => {
      server.removeListener("error", reject);
      // Such as too many open files: the connection is closed, and the next one may be accepted.
      server.on("error", () => {});
      resolve();
    });
  });
}
