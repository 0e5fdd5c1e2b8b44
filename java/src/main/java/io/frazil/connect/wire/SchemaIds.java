package io.frazil.connect.wire;

import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.Map;
import java.util.function.ToIntFunction;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.errors.DataException;

/**
 * The ids under which a session knows schemas.
 *
 * <p>Converters mostly hand out one schema object again and again, so the last one is compared
 * first, then objects by identity, then by content. What falls out of a full cache is registered
 * again and gets the same id: the native side compares the bytes.
 */
final class SchemaIds {
    private static final int IDENTITIES_MAX = 1024;
    private static final int CONTENTS_MAX = 4096;

    private final Map<Schema, Integer> byIdentity = new IdentityHashMap<>();
    private final Map<Schema, Integer> byContent = new HashMap<>();
    private Schema last;
    private int lastId;

    /**
     * Returns the id of {@code schema}, 0 for null.
     *
     * @throws RowException when the schema cannot be registered
     */
    int of(Schema schema, ToIntFunction<byte[]> register) {
        if (schema == null) {
            return 0;
        }
        if (schema == last) {
            return lastId;
        }
        Integer id = byIdentity.get(schema);
        if (id == null) {
            id = byContent(schema, register);
            if (byIdentity.size() >= IDENTITIES_MAX) {
                byIdentity.clear();
            }
            byIdentity.put(schema, id);
        }
        last = schema;
        lastId = id;
        return id;
    }

    private int byContent(Schema schema, ToIntFunction<byte[]> register) {
        boolean comparable = true;
        try {
            Integer known = byContent.get(schema);
            if (known != null) {
                return known;
            }
        } catch (StackOverflowError containsItself) {
            comparable = false;
        }
        int id;
        byte[] bytes = SchemaWriter.write(schema);
        try {
            id = register.applyAsInt(bytes);
        } catch (DataException refused) {
            throw new RowException(RowException.SCHEMA_REFUSED, refused.getMessage());
        }
        if (comparable) {
            if (byContent.size() >= CONTENTS_MAX) {
                byContent.clear();
            }
            byContent.put(schema, id);
        }
        return id;
    }
}
