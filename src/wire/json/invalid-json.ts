/** Invalid JSON, or JSON that is not of the message. Its message is that of the gateway of etcd, without positions. */
export class InvalidJson extends Error {}
