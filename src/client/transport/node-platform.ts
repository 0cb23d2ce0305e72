import { open } from "node:fs/promises";
import { parseAddress } from "./address.ts";
import { ClientCertificates } from "./client-certificates.ts";
import { GrpcTransport } from "./grpc-transport.ts";
import type { Platform } from "./platform.ts";

/** Node.js: gRPC by grpc-js. */
export const nodePlatform: Platform = {
  hasRequestStreams: true,

  servers({ address, tls }, settings, clock) {
    const certificates = tls && new ClientCertificates(tls, clock);
    const all = { ...settings, certificates, serverName: tls?.serverName };
    return (typeof address === "string" ? [address] : address).map((text) => {
      const parsed = parseAddress(text);
      const certificate = () => certificates?.certificate;
      return { text, certificate, open: () => new GrpcTransport(parsed, all) };
    });
  },

  async readTextFile(path, maxBytes) {
    const file = await open(path);
    try {
      const { buffer, bytesRead } = await file.read(Buffer.alloc(maxBytes), 0);
      return buffer.toString("utf8", 0, bytesRead);
    } finally {
      await file.close();
    }
  },
};
