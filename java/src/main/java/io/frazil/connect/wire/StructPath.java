package io.frazil.connect.wire;

import java.util.List;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;

/**
 * The structs around the schema at hand, to see where one contains itself.
 *
 * <p>Converters make a recursive schema with wrappers or builders that are not the same object as
 * the schema around them and not always equal to it; but all of them have the same field objects.
 */
final class StructPath {
    private final Schema[] structs = new Schema[SchemaWriter.NESTING_MAX + 2];

    /** Notes {@code schema} at {@code depth}; tells whether it is one of the structs around it. */
    boolean enter(Schema schema, int depth) {
        boolean struct = schema.type() == Schema.Type.STRUCT;
        structs[depth] = struct ? schema : null;
        if (!struct) {
            return false;
        }
        for (int above = 0; above < depth; above++) {
            if (structs[above] != null && same(structs[above], schema)) {
                return true;
            }
        }
        return false;
    }

    private static boolean same(Schema left, Schema right) {
        List<Field> ours = left.fields();
        List<Field> theirs = right.fields();
        return !ours.isEmpty() && ours.size() == theirs.size() && ours.get(0) == theirs.get(0);
    }
}
