import { createServer, type Server } from "node:net";
import { ServerCredentials, type ServerOptions } from "@grpc/grpc-js";
import { onTestFinished } from "vitest";
import type { ConnectOptions } from "../../src/client/calls/options.ts";
import { type Client, connect } from "../../src/client/connect.ts";
import { type Script, startScriptedServer } from "./scripted-server.ts";

/** A scripted server that is closed after the test. */
export function server(script: Script): Promise<string> {
  return serverWith({}, script);
}

/** The same, with gRPC options. */
export async function serverWith(options: ServerOptions, script: Script): Promise<string> {
  const plain = ServerCredentials.createInsecure();
  const { address, stop } = await startScriptedServer(script, plain, options);
  onTestFinished(stop);
  return address;
}

/** A client that is closed after the test. Its jitter is the minimum, and its calls have time on a busy machine as well. */
export function client(
  address: string | readonly string[],
  options: Partial<ConnectOptions> = {},
): Client {
  const opened = connect({ address, random: () => 0, timeoutMs: 60_000, ...options });
  onTestFinished(() => opened.close());
  return opened;
}

/** An address that no server listens on, and no other test gets: its port is not one that the system picks. */
export const deadAddress = "127.0.0.1:1";

/** A server that accepts connections, and sends nothing on them. */
export async function muteAddress(): Promise<string> {
  const mute: Server = createServer((socket) => {
    onTestFinished(() => {
      socket.destroy();
    });
  });
  await new Promise<void>((resolve) => mute.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    mute.close();
  });
  const address = mute.address();
  if (address === null || typeof address === "string") throw new Error("It has no port.");
  return `127.0.0.1:${address.port}`;
}
