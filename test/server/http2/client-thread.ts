import { Worker } from "node:worker_threads";
import { onTestFinished } from "vitest";
import { framed } from "./raw-connection.ts";

/** In JavaScript, since a thread does not have the test runner's loader. */
const source = `
  const { connect } = require("node:http2");
  const { parentPort, workerData } = require("node:worker_threads");
  const session = connect("http://127.0.0.1:" + workerData, { maxSessionMemory: 1_000 });
  session.on("error", () => {});
  parentPort.on("message", ({ path, frame }) => {
    const stream = session.request({
      ":method": "POST", ":path": path, "content-type": "application/grpc", te: "trailers",
    });
    let code;
    const take = (headers) => { code = headers["grpc-status"] ?? code; };
    stream.on("response", take).on("trailers", take).on("error", () => {}).resume();
    stream.on("close", () => parentPort.postMessage(code === undefined ? undefined : Number(code)));
    stream.end(frame);
  });
`;

/** A connection in a thread of its own: what the client keeps is not in the heap of the test, where the server is. */
export class ClientThread {
  readonly #worker: Worker;
  /** The status code of each call that has ended. */
  readonly ended: (number | undefined)[] = [];

  constructor(port: number) {
    this.#worker = new Worker(source, { eval: true, workerData: port });
    this.#worker.on("message", (code: number | undefined) => this.ended.push(code));
    onTestFinished(async () => void (await this.#worker.terminate()));
  }

  /** Sends one message and half-closes. The thread gets a copy: a buffer that is transferred still counts here. */
  call(path: string, message: Uint8Array): void {
    this.#worker.postMessage({ path, frame: framed(message) });
  }
}
