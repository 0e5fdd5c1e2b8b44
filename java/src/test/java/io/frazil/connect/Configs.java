package io.frazil.connect;

import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;

/** Configurations that the tests start from. */
final class Configs {
    private Configs() {}

    /** A connector that needs no service: an SQL catalog in a file beside a local warehouse. */
    static Map<String, String> local(Path folder) {
        Map<String, String> config = new HashMap<>();
        config.put("name", "orders");
        config.put("connector.class", FrazilSinkConnector.class.getName());
        config.put("topics", "orders");
        config.put("tasks.max", "1");
        config.put("iceberg.catalog.type", "sql");
        config.put("iceberg.catalog.uri", "sqlite:" + folder.resolve("catalog.db"));
        config.put("iceberg.catalog.warehouse", folder.resolve("warehouse").toUri().toString());
        config.put("iceberg.tables", "db.orders");
        config.put("iceberg.tables.auto-create-enabled", "true");
        return config;
    }

    /** The same as one task gets it. */
    static Map<String, String> localTask(Path folder) {
        Map<String, String> config = local(folder);
        config.put(FrazilSinkConnector.TASK_KEY, "0");
        config.put(FrazilSinkConnector.TASKS_KEY, "1");
        return config;
    }
}
