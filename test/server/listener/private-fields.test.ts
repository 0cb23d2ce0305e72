import { once } from "node:events";
import { globSync, readFileSync } from "node:fs";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { connect, createServer as createTlsServer, type TLSSocket } from "node:tls";
import { expect, onTestFinished, test } from "vitest";
import { rawSocketOf } from "../../../src/server/http2/peer.ts";
import { serverCertificate } from "../authenticated-calls.ts";

/** Names of fields that begin with an underscore, and the symbols of Node.js, are private. */
const privateField = /Reflect\.\w+\(\w+, "_\w+"|\._handle\b|getOwnPropertySymbols|"k[A-Z]\w+"/g;

/** What was private in grpc-js's server and calls, and was used once. */
const ofGrpcJs = /"(commonServerOptions|http2Servers|nextCall|readPartialMessage)"/g;

test("The accepted socket below one of TLS is the only private field of others that is used", () => {
  const used = globSync("src/**/*.ts").flatMap((file) => {
    const text = readFileSync(file, "utf8");
    return [...text.matchAll(privateField), ...text.matchAll(ofGrpcJs)].map(([found]) => [
      ...[file, found],
    ]);
  });
  expect(used).toEqual([["src/server/http2/peer.ts", 'Reflect.get(socket, "_parent"']]);
});

test("The accepted socket below one of TLS is found", async () => {
  const accepted: Socket[] = [];
  const tls = createTlsServer(serverCertificate);
  const server = createServer((socket) => {
    accepted.push(socket);
    tls.emit("connection", socket);
  }).listen(0, "127.0.0.1");
  onTestFinished(() => void server.close());
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const client = connect({ port, host: "127.0.0.1", rejectUnauthorized: false });
  onTestFinished(() => void client.destroy());
  const [secured] = (await once(tls, "secureConnection")) as [TLSSocket];
  expect(rawSocketOf(secured)).toBe(accepted[0]);
});
