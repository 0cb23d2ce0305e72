import { expect, test } from "vitest";
import { ConnectDoor } from "../../src/web/connect-door.ts";
import { aggregatedMethods } from "../../src/xds/types.ts";
import { cluster } from "../xds/discovery-client.ts";
import { serveXds } from "../xds/serving.ts";

/*
 * The methods of xDS by HTTP: this service does not know the types of their messages.
 */

const [path] = aggregatedMethods;

test.each(["application/connect+json", "application/json", "application/x-ndjson"])(
  "%s is refused for a method of xDS, and the service stays",
  async (type) => {
    const { server, client } = await serveXds({
      ...{ types: ["cds"], server: { webDoor: new ConnectDoor() } },
      stored: { "cds/a": cluster("a") },
    });
    const response = await fetch(`http://127.0.0.1:${server.port}${path}`, {
      ...{ method: "POST", headers: { "content-type": type }, body: "{}" },
    });
    expect(response.status).toBe(415);
    expect(await response.text()).toContain("application/connect+proto");
    const stream = client.delta();
    stream.send({ type: "cds", names: ["*"] });
    expect((await stream.response(0)).resources.map(({ name }) => name)).toEqual(["a"]);
  },
);
