import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { CompressionOptions } from "../../src/server/server.ts";
import { listWatchService } from "../../src/wire/services.ts";
import { podValue } from "../pod-value.ts";
import { EncodedClient } from "../server/encoded-client.ts";
import { serveThings } from "../server/served.ts";
import { buildTimeoutMs } from "./documented.ts";

const run = promisify(execFile);
const { List, Watch } = listWatchService;

/** A client of gRPC in another language, which reads the messages of a call and prints their digest. */
interface ClientProgram {
  /** Below `compression`. */
  readonly folder: string;
  readonly probe: string;
  /** Run in its folder. $BUILD is a folder for what they make. */
  readonly build: string;
  /** Its command, without the arguments. */
  readonly start: string;
  /** What it accepts of a service. */
  readonly encodings: readonly CompressionOptions["encodings"][number][];
}

const programs: readonly ClientProgram[] = [
  {
    folder: "go",
    probe: "go version",
    build: 'go build -o "$BUILD/client" .',
    start: '"$BUILD/client"',
    encodings: ["gzip", "zstd"],
  },
  {
    folder: "python",
    probe: "python3 -c 'import ensurepip, venv'",
    build: 'python3 -m venv "$BUILD" && "$BUILD/bin/pip" install --quiet -r requirements.txt',
    start: '"$BUILD/bin/python" main.py',
    encodings: ["gzip"],
  },
];

async function isInstalled({ folder, probe }: ClientProgram): Promise<boolean> {
  try {
    await run("sh", ["-c", probe], { timeout: 20_000 });
    return true;
  } catch {
    process.stderr.write(`Skipped the client in ${folder}, since "${probe}" fails.\n`);
    return false;
  }
}

const installed = new Set<ClientProgram>();
for (const program of programs) if (await isInstalled(program)) installed.add(program);

const resource = "things";
const calls = [
  [
    "the state that a Watch begins with",
    Watch.path,
    Watch.requestSerialize({ resource, send_initial_events: true }),
  ],
  ["a List", List.path, List.requestSerialize({ resource })],
  ["a page of a List", List.path, List.requestSerialize({ resource, page_size: 700 })],
] as const;

/** The bytes of all messages of a call, as a client gets them that accepts no encoding. */
async function plainMessages(port: number, path: string, request: Buffer): Promise<Buffer> {
  const client = new EncodedClient(port, undefined);
  const isWatch = path === Watch.path;
  const call = client.open(
    {
      ...{
        path,
        requestSerialize: () => request,
        responseDeserialize: (message: Buffer) => message,
      },
      ...{ requestStream: false, responseStream: isWatch },
    } as never,
    undefined as never,
  );
  const parts: Buffer[] = [];
  for (;;) {
    const { message } = await call.next();
    parts.push(message as Buffer);
    if (!isWatch || Watch.responseDeserialize(message as Buffer).initial_events_end) break;
  }
  client.close();
  return Buffer.concat(parts);
}

describe.each(programs)("A gRPC client in $folder", { timeout: 90_000 }, (program) => {
  describe.skipIf(!installed.has(program))("with its toolchain", () => {
    const { folder, build, start, encodings } = program;
    const cwd = join("test/languages/compression", folder);
    let env: NodeJS.ProcessEnv;

    beforeAll(async () => {
      env = { ...process.env, BUILD: await mkdtemp(join(tmpdir(), "compression-client-")) };
      await run("sh", ["-ec", build], { cwd, env, timeout: buildTimeoutMs });
    }, buildTimeoutMs);

    afterAll(() => rm(env["BUILD"] ?? "", { recursive: true }));

    it.each(encodings)("reads what is compressed with %s", async (encoding) => {
      const compression = { encodings: [encoding] };
      const { server, storage } = await serveThings({ server: { compression } });
      await storage.txn(
        Array.from({ length: 1_200 }, (_, i) => ({
          ...{ type: "put", key: `pods/${i}`, value: podValue(i) },
        })),
      );
      for (const [what, path, request] of calls) {
        const plain = await plainMessages(server.port, path, request);
        const sentBefore = server.stats().compression?.sentPlainBytes ?? 0;
        const args = [`127.0.0.1:${server.port}`, path, request.toString("hex"), plain.length];
        const command = `exec ${start} ${args.join(" ")}`;
        const { stdout } = await run("sh", ["-c", command], { cwd, env, timeout: 60_000 });
        const digest = createHash("sha256").update(plain).digest("hex");
        expect([what, stdout]).toEqual([what, `${folder} ${plain.length} ${digest}\n`]);
        const sent = (server.stats().compression?.sentPlainBytes ?? 0) - sentBefore;
        expect(sent).toBeGreaterThan(0.9 * plain.length);
      }
    });
  });
});
