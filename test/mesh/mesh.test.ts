import { readFile } from "node:fs/promises";
import { connect as connectHttp2, type SecureClientSessionOptions } from "node:http2";
import { join } from "node:path";
import { credentials, Client as GrpcClient, Metadata, status } from "@grpc/grpc-js";
import { describe, expect, onTestFinished, test } from "vitest";
import { envoyBinary } from "../../scripts/envoy.ts";
import { type Client, connect } from "../../src/client/connect.ts";
import { listWatchService } from "../../src/wire/services.ts";
import { Authority } from "../identity/authority.ts";
import { Mesh, spiffePrefix } from "./mesh.ts";

const envoy = await envoyBinary().catch((error: Error) => {
  process.stderr.write(`Skipped, since the tests of a service mesh need Envoy. ${error.message}\n`);
  return undefined;
});

async function startMesh(policy?: string): Promise<Mesh> {
  const mesh = await Mesh.start(envoy ?? "", policy);
  onTestFinished(() => mesh[Symbol.asyncDispose]());
  return mesh;
}

/** Puts the numbers from 1 to the key, one after the other, until the signal is aborted. Returns the last. */
async function putNumbers(client: Client, key: string, signal: AbortSignal): Promise<number> {
  for (let number = 1; ; number++) {
    await client.put("configs", key, Buffer.from(String(number)));
    if (signal.aborted) return number;
  }
}

/** Gets the key, again and again, until the signal is aborted. Rejects if a call fails. */
async function getAll(client: Client, key: string, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) await client.get("configs", key);
}

/** Watches the key from the revision on until it has the number, and returns each number that arrived. */
async function numbersOf(
  client: Client,
  key: string,
  { after, last }: { readonly after: number; readonly last: Promise<number> },
): Promise<readonly number[]> {
  const numbers: number[] = [];
  const abort = new AbortController();
  let end = Infinity;
  void last.then((number) => {
    end = number;
    if (numbers.at(-1) === end) abort.abort();
  });
  const options = { scope: { key }, afterRevision: after, signal: abort.signal };
  for await (const { events } of client.watch("configs", options)) {
    for (const { object } of events) numbers.push(Number(Buffer.from(object.value).toString()));
    if (numbers.at(-1) === end) return numbers;
  }
  return numbers;
}

function upTo(count: number): readonly number[] {
  return Array.from({ length: count }, (_, i) => i + 1);
}

describe.skipIf(envoy === undefined)("Two replicas in a mesh of Envoy sidecars", () => {
  test.each(["SIGTERM", "SIGKILL"] as const)(
    "serve reads without a failure, and watches without a gap, while one of them ends by %s",
    async (signal) => {
      const mesh = await startMesh();
      const [replica, other] = mesh.replicas;
      if (replica === undefined || other === undefined) throw new Error("There are two replicas.");
      using writer = connect({ address: other.grpc });
      const { client: reader, sidecar } = await mesh.client("reader");
      const { revision: after } = await writer.put("configs", "n", Buffer.from("0"));

      const ended = new AbortController();
      const last = putNumbers(writer, "n", ended.signal);
      const reads = getAll(reader, "n", ended.signal);
      // Envoy spreads calls in rotation, so that each replica has some of the watches.
      const watches = upTo(4).map(() => numbersOf(reader, "n", { after, last }));
      replica.process.kill(signal);
      await replica.process.exit;
      await sidecar.untilHealthy(1);
      ended.abort();

      const all = upTo(await last);
      expect(await Promise.all(watches)).toEqual(watches.map(() => all));
      await reads;
    },
  );

  test("give each caller the rights of the identity that its sidecar has, and no other", async () => {
    const mesh = await startMesh(`
roles:
  - { name: reader, rules: [{ resources: [configs], prefixes: ["*"], verbs: [get, list, watch] }] }
  - { name: writer, rules: [{ resources: [configs], prefixes: ["*"], verbs: [put] }] }
bindings:
  - { role: reader, subjects: ["${spiffePrefix}reader"] }
  - { role: writer, subjects: ["${spiffePrefix}writer"] }
`);
    const { client: writer } = await mesh.client("writer");
    const { client: reader, sidecar } = await mesh.client("reader");
    await writer.put("configs", "n", Buffer.from("1"));
    expect(await reader.get("configs", "n")).toMatchObject({ object: { key: "n" } });

    const denied = { reason: "PERMISSION_DENIED" };
    await expect(reader.put("configs", "n", Buffer.from("2"))).rejects.toMatchObject({
      ...denied,
      message: expect.stringContaining(`"${spiffePrefix}reader" may not put`),
    });
    await expect(writer.get("configs", "n")).rejects.toMatchObject(denied);

    // The header that a client makes up is replaced by the sidecar of the replica.
    const forged = await getWithHeader(sidecar.address, `URI=${spiffePrefix}writer`);
    expect(forged).toBe("OK");
  });

  test("refuse callers without a certificate of the mesh", async () => {
    const mesh = await startMesh();
    const [address = ""] = mesh.addresses;
    const folder = await mesh.certificates("reader");
    const [cert, key] = await Promise.all(
      ["tls.crt", "tls.key"].map((file) => readFile(join(folder, file))),
    );
    const stranger = await (await Authority.create("CN=Other authority")).issue();
    expect(await outcomeOf(address, { cert, key })).toBe("response");
    expect(await outcomeOf(address, stranger)).toBe("refused");
    expect(await outcomeOf(address, {})).toBe("refused");
  });
});

/** Gets a key with this `x-forwarded-client-cert`, and returns the name of the status code. */
function getWithHeader(address: string, forwarded: string): Promise<string> {
  const client = new GrpcClient(address, credentials.createInsecure());
  const metadata = new Metadata();
  metadata.set("x-forwarded-client-cert", forwarded);
  const { path, requestSerialize, responseDeserialize } = listWatchService.Get;
  return new Promise((resolve) => {
    client.makeUnaryRequest(
      path,
      requestSerialize,
      responseDeserialize,
      { resource: "configs", key: "n" },
      metadata,
      { deadline: Date.now() + 60_000 },
      (error) => {
        client.close();
        resolve(status[error?.code ?? status.OK]);
      },
    );
  });
}

/** Whether a request over TLS with this certificate gets a response. */
async function outcomeOf(
  address: string,
  certificate: Pick<SecureClientSessionOptions, "cert" | "key">,
): Promise<"response" | "refused"> {
  const options = { ...certificate, rejectUnauthorized: false };
  const session = connectHttp2(`https://${address}`, options).on("error", () => {});
  const request = session.request({ ":path": "/" });
  return new Promise((resolve) => {
    request.on("response", () => resolve("response")).on("error", () => resolve("refused"));
    request.on("close", () => session.destroy());
    request.resume();
  });
}
