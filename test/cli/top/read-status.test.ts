import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { readStatus } from "../../../src/cli/top/read-status.ts";

/** Reads a status from a server that responds with `respond`. */
async function readFrom(
  respond: (response: ServerResponse) => void,
  timeoutMs: number,
): Promise<unknown> {
  const server = createServer((_, response) => respond(response.writeHead(200)));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const url = new URL(`http://127.0.0.1:${port}`);
  return readStatus({ url, timeoutMs }, new URLSearchParams()).catch((error: Error) =>
    error.message.replace(`${port}`, "PORT"),
  );
}

test("says that it did not wait for the rest of a response", async () => {
  const message = await readFrom((response) => response.write("{"), 200);
  expect(message).toContain("http://127.0.0.1:PORT does not respond: The operation was aborted.");
});

test("says that a response was cut off", async () => {
  const message = await readFrom((response) => {
    response.write("{", () => response.destroy());
  }, 60_000);
  expect(message).toContain("http://127.0.0.1:PORT does not respond: aborted.");
});

test("says that a response is too large", async () => {
  const message = await readFrom((response) => response.end(Buffer.alloc(9 * 1024 ** 2)), 60_000);
  expect(message).toContain("does not respond: the response is too large.");
});
