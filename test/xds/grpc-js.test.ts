import { describe, it } from "vitest";
import { Example, exampleCommand } from "../examples/example.ts";
import { testProxyless } from "./proxyless.ts";

describe("A client of grpc-js-xds", () => {
  it("calls the instances that there are, without a failed call", { timeout: 180_000 }, () =>
    testProxyless((bootstrap) => {
      const command = exampleCommand("xds/client.ts", ["xds:///greeter"]);
      return new Example(["env", `GRPC_XDS_BOOTSTRAP=${bootstrap}`, ...command]);
    }),
  );
});
