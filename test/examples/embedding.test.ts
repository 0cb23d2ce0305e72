import { expect, it } from "vitest";
import { connect } from "../../src/client/connect.ts";
import { jsonValues } from "../../src/client/values/value-codec.ts";
import { Example } from "./example.ts";

it("A grpc-js server serves what addTo adds to it, and ends its streams when it is drained.", async () => {
  const example = Example.start("embedding/main.ts", ["127.0.0.1:0"]);
  const [, port] = await example.said(/on port (\d+)\./);
  const client = connect({ address: `127.0.0.1:${port}` });
  const settings = client.resource("settings", jsonValues<string>());
  expect((await settings.get("color"))?.value).toBe("green");
  await settings.put("color", "blue");
  const interrupted = Promise.withResolvers<string>();
  const informer = settings.informer({
    onWatchError: ({ error }) => interrupted.resolve(error.reason),
  });
  informer.start();
  await informer.waitForSync();
  expect(informer.indexer.get("color")?.value).toBe("blue");
  expect(await example.stop()).toBe(0);
  expect(await interrupted.promise).toMatch(/DRAINING|UNAVAILABLE/);
  await informer.stop();
  client.close();
});
