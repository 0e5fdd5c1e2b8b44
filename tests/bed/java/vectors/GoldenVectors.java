import java.nio.file.Path;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.LongStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.DeleteFile;
import org.apache.iceberg.FileFormat;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Schema;
import org.apache.iceberg.Table;
import org.apache.iceberg.deletes.BaseDVFileWriter;
import org.apache.iceberg.deletes.DVFileWriter;
import org.apache.iceberg.hadoop.HadoopTables;
import org.apache.iceberg.io.OutputFileFactory;
import org.apache.iceberg.types.Types;

/**
 * Writes deletion vectors with Iceberg's Java library: what ours are compared with.
 *
 * <p>All vectors go into one Puffin file of a table in a directory given as the argument; its path is
 * printed. {@code rust/core/src/delete/vector_tests.rs} has the same positions.
 */
public final class GoldenVectors {
  private GoldenVectors() {}

  private static Map<String, LongStream> cases() {
    Map<String, LongStream> cases = new TreeMap<>();
    cases.put("one", LongStream.of(0));
    cases.put("few", LongStream.of(1, 2, 3, 7, 1_000, 70_000));
    cases.put("run", LongStream.range(100, 60_000));
    cases.put("runs", LongStream.range(0, 20_000).filter(row -> row % 100 < 60));
    cases.put("every-second", LongStream.range(0, 12_000).filter(row -> row % 2 == 0));
    cases.put("scattered", LongStream.range(0, 900).map(row -> row * row * 37));
    cases.put("far", LongStream.of(5, (1L << 32) - 1, 1L << 32, (1L << 32) + 9));
    return cases;
  }

  /** Writes the vectors. */
  public static void main(String[] arguments) throws Exception {
    Schema schema = new Schema(Types.NestedField.required(1, "id", Types.LongType.get()));
    String location = Path.of(arguments[0]).toUri() + "table";
    Table table =
        new HadoopTables(new Configuration())
            .create(
                schema, PartitionSpec.unpartitioned(), Map.of("format-version", "3"), location);
    OutputFileFactory files =
        OutputFileFactory.builderFor(table, 1, 1).format(FileFormat.PUFFIN).build();
    DVFileWriter writer = new BaseDVFileWriter(files, path -> null);
    cases().forEach((name, rows) -> rows.forEach(row -> writer.delete(name, row, table.spec(), null)));
    writer.close();
    DeleteFile first = writer.result().deleteFiles().get(0);
    System.out.println(Path.of(java.net.URI.create(first.location())));
  }
}
