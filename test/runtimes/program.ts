/**
 * A client that uses each part of the package once, in whichever runtime, and prints what it has seen. Its argument is
 * a Setup in JSON.
 */
import { Buffer } from "node:buffer";
import process from "node:process";
import {
  connect,
  hasReason,
  jsonValues,
  runWorkers,
  type TypedResource,
  WorkQueue,
} from "watch-fanout-client";

/** Addresses of one service, in plain text and with TLS, and the certificate of the latter's authority. */
export interface Setup {
  readonly plain: string;
  readonly secure: string;
  readonly ca: string;
}

interface Thing {
  readonly n: number;
}

async function calls(things: TypedResource<Thing>): Promise<unknown> {
  await things.put("calls/a", { n: 1 });
  const updated = await things.update("calls/a", (value) => ({ n: (value?.n ?? 0) + 1 }));
  const absent = await things.get("calls/b").catch((error) => hasReason(error, "OBJECT_NOT_FOUND"));
  // A number of 63 bits, in a request and in the details of an error.
  const lease = 2n ** 63n - 2n;
  const metadata = await things
    .put("calls/b", { n: 1 }, { lease })
    .catch((error) => hasReason(error, "LEASE_NOT_FOUND") && error.metadata);
  const listed: string[] = [];
  for await (const { items } of things.list({ prefix: "calls/" })) {
    listed.push(...items.map(({ key }) => key));
  }
  await things.delete("calls/a");
  return { updated: updated?.value, absent, metadata, listed };
}

/** Follows `followed/`, of which one object is written before the connections break, and one after that. */
async function follow(things: TypedResource<Thing>): Promise<unknown> {
  const queue = new WorkQueue<string>();
  const informer = things.informer({ scope: { prefix: "followed/" } });
  informer.addEventHandler({
    onAdd: ({ key }) => queue.add(key),
    onUpdate: (_, { key }) => queue.add(key),
    onDelete: ({ key }) => queue.add(key),
  });
  informer.start();
  const worked: string[] = [];
  const working = runWorkers(1, queue, (key) => {
    worked.push(key);
    if (worked.length === 2) queue.shutDown();
  });
  const { modRevision } = await things.put("followed/before", { n: 1 });
  const watched: unknown[] = [];
  const scope = { prefix: "followed/" };
  for await (const { events } of things.watch({ scope, afterRevision: modRevision - 1 })) {
    for (const { type, object } of events) watched.push([type, object?.key, object?.value]);
    // The test cuts the connections, and writes the other object.
    if (watched.length === 1 && events.length > 0) process.stdout.write("following\n");
    if (watched.length >= 2) break;
  }
  await working;
  const lister = informer.lister();
  const listed = lister.list().map(({ key }) => key);
  await informer.stop();
  return { watched, worked, listed };
}

async function main({ plain, secure, ca }: Setup): Promise<void> {
  const client = connect({ address: plain });
  const things = client.resource("things", jsonValues<Thing>());
  const called = await calls(things);
  const serving = await client.isServing();
  const resources = (await client.resources()).map(({ name }) => name);

  const encrypted = connect({ address: secure, tls: { ca: Buffer.from(ca) } });
  const overTls = await calls(encrypted.resource("things", jsonValues<Thing>()));
  encrypted.close();
  const untrusting = connect({ address: secure, tls: {}, timeoutMs: 2_000 });
  const refused = await untrusting.isServing().catch((error) => error.reason);
  untrusting.close();

  const followed = await follow(things);
  client.close();
  const seen = { called, serving, resources, overTls, refused, followed };
  process.stdout.write(`${JSON.stringify(seen)}\n`);
}

void main(JSON.parse(process.argv[2] ?? "{}"));
