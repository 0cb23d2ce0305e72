import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Client, connect } from "../../../src/client/connect.ts";
import { buildDescriptors } from "../../codec/fixtures.ts";
import { startServe } from "../serve/serve-process.ts";
import { type Outcome, run, type TerminalOptions } from "./client-terminal.ts";

/** A service in a process of its own, with the resources `pods` (JSON), `leases` (protobuf) and `blobs` (opaque). */
export class ServedCodecs implements AsyncDisposable {
  readonly address: string;
  readonly client: Client;
  /** A scratch folder. */
  readonly folder: string;
  readonly descriptors: string;
  readonly #stop: () => Promise<void>;

  private constructor(address: string, folder: string, stop: () => Promise<void>) {
    this.address = address;
    this.client = connect({ address });
    this.folder = folder;
    this.descriptors = join(folder, "lease.binpb");
    this.#stop = stop;
  }

  static async start(): Promise<ServedCodecs> {
    const folder = mkdtempSync(join(tmpdir(), "watch-fanout-"));
    writeFileSync(join(folder, "lease.binpb"), buildDescriptors());
    const config = join(folder, "config.yaml");
    writeFileSync(
      config,
      `resources:
  - name: pods
    prefix: /pods/
    codec: json
    fields: [spec.node]
  - name: leases
    prefix: /leases/
    codec: protobuf
    descriptors: ${join(folder, "lease.binpb")}
    message: acme.v1.Lease
  - blobs=/blobs/
`,
    );
    const { process, grpc } = await startServe(["--config", config]);
    return new ServedCodecs(grpc, folder, () => process[Symbol.asyncDispose]());
  }

  /** Runs one command against it. */
  run(args: readonly string[], options?: TerminalOptions): Promise<Outcome> {
    return run([...args, "--address", this.address], options);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.client.close();
    await this.#stop();
    rmSync(this.folder, { recursive: true });
  }
}
