// Original file: proto/watchfanout/v1/object.proto

import type { Long } from '@grpc/proto-loader';

/**
 * One object as it stands in the store at one revision.
 * 
 * A revision is etcd's store revision: every transaction that changes something takes the next one,
 * and all keys that the transaction touches carry it.
 */
export interface StoredObject {
  /**
   * The key, relative to the resource's prefix, for example "ns-1/pod-7". Never empty.
   */
  'key'?: (string);
  /**
   * The value, byte for byte as it was written.
   */
  'value'?: (Buffer | Uint8Array | string);
  /**
   * The revision that created the key. It changes when a deleted key is created anew.
   */
  'create_revision'?: (number | string | Long);
  /**
   * The revision that last changed the key. In a DELETED event: the one that removed it.
   */
  'mod_revision'?: (number | string | Long);
  /**
   * How often the key has been written since it was created, counting from 1.
   */
  'version'?: (number | string | Long);
  /**
   * The lease that the key is attached to, 0 for none. All of its 63 bits are used.
   */
  'lease'?: (number | string | Long);
}

/**
 * One object as it stands in the store at one revision.
 * 
 * A revision is etcd's store revision: every transaction that changes something takes the next one,
 * and all keys that the transaction touches carry it.
 */
export interface StoredObject__Output {
  /**
   * The key, relative to the resource's prefix, for example "ns-1/pod-7". Never empty.
   */
  'key': (string);
  /**
   * The value, byte for byte as it was written.
   */
  'value': (Buffer);
  /**
   * The revision that created the key. It changes when a deleted key is created anew.
   */
  'create_revision': (string);
  /**
   * The revision that last changed the key. In a DELETED event: the one that removed it.
   */
  'mod_revision': (string);
  /**
   * How often the key has been written since it was created, counting from 1.
   */
  'version': (string);
  /**
   * The lease that the key is attached to, 0 for none. All of its 63 bits are used.
   */
  'lease': (string);
}
