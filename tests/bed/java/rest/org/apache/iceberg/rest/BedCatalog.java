package org.apache.iceberg.rest;

import jakarta.servlet.ServletException;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import jakarta.servlet.http.HttpServletResponseWrapper;
import java.io.IOException;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.MetadataUpdate;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.exceptions.ForbiddenException;
import org.apache.iceberg.rest.credentials.Credential;
import org.apache.iceberg.rest.credentials.ImmutableCredential;
import org.apache.iceberg.rest.requests.UpdateTableRequest;
import org.apache.iceberg.rest.responses.ConfigResponse;
import org.apache.iceberg.rest.responses.ImmutableLoadCredentialsResponse;
import org.apache.iceberg.rest.responses.LoadCredentialsResponseParser;
import org.apache.iceberg.rest.responses.LoadTableResponse;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.server.ServerConnector;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/**
 * A REST catalog on the loopback interface for tests: Apache's reference adapter over a SQLite
 * catalog, with vended keys and injected faults around it.
 *
 * <p>System properties: {@code port}; {@code cat.*} go to the catalog behind; {@code vend.*} is
 * handed to clients as a storage credential ({@code vend.ttl} in seconds adds an expiry);
 * {@code def.*} are the defaults of {@code /v1/config}; {@code token} is a bearer token to ask for.
 *
 * <p>{@code POST /bed/fault?op=commit|any&mode=before|after|conflict|delay&n=COUNT&ms=MILLIS} arms
 * a fault for the next requests without an {@code X-Bed} header, {@code GET /bed/stats} counts what came in.
 * {@code POST /bed/properties?mode=store|refuse|forbid|drop} says what becomes of commits that set table
 * properties named {@code frazil.*}.
 */
public final class BedCatalog {
  private static final Map<String, String> VENDED = properties("vend.");
  private static final AtomicLong REQUESTS = new AtomicLong();
  private static final AtomicLong COMMITS = new AtomicLong();
  private static final AtomicLong LOADS = new AtomicLong();
  private static final AtomicLong FAULTS = new AtomicLong();
  private static Fault fault = new Fault("none", "none", 0, 0);
  private static volatile String propertyMode = "store";

  private record Fault(String operation, String mode, int left, long delayMs) {}

  private BedCatalog() {}

  private static Map<String, String> properties(String prefix) {
    Map<String, String> found = new HashMap<>();
    for (String name : System.getProperties().stringPropertyNames()) {
      if (name.startsWith(prefix)) {
        found.put(name.substring(prefix.length()), System.getProperty(name));
      }
    }
    return found;
  }

  /** Takes one armed fault that fits a request, or answers null. */
  private static synchronized Fault take(boolean commit) {
    boolean fits = fault.operation.equals("any") || fault.operation.equals("commit") && commit;
    if (!fits || fault.left == 0) {
      return null;
    }
    Fault taken = fault;
    fault = new Fault(taken.operation, taken.mode, taken.left - 1, taken.delayMs);
    FAULTS.incrementAndGet();
    return taken;
  }

  private static synchronized void arm(Fault next) {
    fault = next;
  }

  private static Credential credential() {
    Map<String, String> config = new HashMap<>(VENDED);
    String ttl = config.remove("ttl");
    String prefix = config.getOrDefault("prefix", "s3");
    config.remove("prefix");
    if (ttl != null) {
      long expires = System.currentTimeMillis() + 1000L * Long.parseLong(ttl);
      config.put("s3.session-token-expires-at-ms", Long.toString(expires));
    }
    return ImmutableCredential.builder().prefix(prefix).putAllConfig(config).build();
  }

  private static final class VendingAdapter extends RESTCatalogAdapter {
    VendingAdapter(Catalog catalog) {
      super(catalog);
    }

    @Override
    public <T extends RESTResponse> T handleRequest(
        Route route, Map<String, String> vars, Object body, Class<T> type) {
      Object taken = body instanceof UpdateTableRequest update ? withProperties(update) : body;
      T response = super.handleRequest(route, vars, taken, type);
      if (response instanceof LoadTableResponse load) {
        LOADS.incrementAndGet();
        return VENDED.isEmpty() ? response : type.cast(vend(load));
      }
      if (response instanceof ConfigResponse config) {
        return type.cast(
            ConfigResponse.builder()
                .withDefaults(properties("def."))
                .withOverrides(config.overrides())
                .withEndpoints(config.endpoints())
                .build());
      }
      return response;
    }

    /** What a catalog makes of properties that it does not like. */
    private static UpdateTableRequest withProperties(UpdateTableRequest update) {
      List<MetadataUpdate> others =
          update.updates().stream().filter(one -> !setsFrazil(one)).collect(Collectors.toList());
      if (others.size() == update.updates().size()) {
        return update;
      }
      return switch (propertyMode) {
        case "refuse" -> throw new IllegalArgumentException("no such table property");
        case "forbid" -> throw new ForbiddenException("no right to set table properties");
        case "drop" -> UpdateTableRequest.create(update.identifier(), update.requirements(), others);
        default -> update;
      };
    }

    private static boolean setsFrazil(MetadataUpdate update) {
      return update instanceof MetadataUpdate.SetProperties set
          && set.updated().keySet().stream().anyMatch(key -> key.startsWith("frazil."));
    }

    private static LoadTableResponse vend(LoadTableResponse load) {
      Credential credential = credential();
      return LoadTableResponse.builder()
          .withTableMetadata(load.tableMetadata())
          .addAllConfig(load.config())
          .addAllConfig(credential.config())
          .addCredential(credential)
          .build();
    }
  }

  private static final class FaultyServlet extends RESTCatalogServlet {
    private static final long serialVersionUID = 1L;

    FaultyServlet(RESTCatalogAdapter adapter) {
      super(adapter);
    }

    @Override
    protected void service(HttpServletRequest request, HttpServletResponse response)
        throws IOException, ServletException {
      String path = request.getRequestURI();
      if (path.startsWith("/bed/")) {
        control(path, request, response);
        return;
      }
      REQUESTS.incrementAndGet();
      String token = System.getProperty("token");
      if (token != null && !("Bearer " + token).equals(request.getHeader("Authorization"))) {
        error(response, 401, "NotAuthorizedException");
        return;
      }
      if (path.endsWith("/credentials") && request.getMethod().equals("GET")) {
        response.setContentType("application/json");
        response
            .getWriter()
            .write(
                LoadCredentialsResponseParser.toJson(
                    ImmutableLoadCredentialsResponse.builder()
                        .addCredentials(credential())
                        .build()));
        return;
      }
      boolean commit =
          request.getMethod().equals("POST")
              && (path.matches(".*/tables/[^/]+") || path.endsWith("/transactions/commit"));
      if (commit) {
        COMMITS.incrementAndGet();
      }
      // Whoever tests looks at tables too, and must not spend the faults on that.
      Fault taken = request.getHeader("X-Bed") != null ? null : take(commit);
      if (taken == null) {
        super.service(request, response);
      } else {
        fail(taken, request, response);
      }
    }

    private void fail(Fault taken, HttpServletRequest request, HttpServletResponse response)
        throws IOException, ServletException {
      if (taken.delayMs > 0) {
        try {
          Thread.sleep(taken.delayMs);
        } catch (InterruptedException interrupted) {
          Thread.currentThread().interrupt();
        }
      }
      switch (taken.mode) {
        case "before" -> error(response, 503, "ServiceUnavailableException");
        case "conflict" -> error(response, 409, "CommitFailedException");
        case "after" -> {
          // The commit is applied, and the client is told that nobody knows.
          super.service(request, new Discard(response));
          error(response, 504, "CommitStateUnknownException");
        }
        default -> super.service(request, response);
      }
    }

    private static void control(
        String path, HttpServletRequest request, HttpServletResponse response) throws IOException {
      if (path.equals("/bed/fault")) {
        String delay = request.getParameter("ms");
        arm(
            new Fault(
                request.getParameter("op"),
                request.getParameter("mode"),
                Integer.parseInt(request.getParameter("n")),
                delay == null ? 0 : Long.parseLong(delay)));
        return;
      }
      if (path.equals("/bed/properties")) {
        propertyMode = request.getParameter("mode");
        return;
      }
      response.setContentType("application/json");
      response
          .getWriter()
          .write(
              String.format(
                  "{\"requests\":%s,\"commits\":%s,\"loads\":%s,\"faults\":%s}",
                  REQUESTS, COMMITS, LOADS, FAULTS));
    }

    private static void error(HttpServletResponse response, int status, String type)
        throws IOException {
      response.setStatus(status);
      response.setContentType("application/json");
      response
          .getWriter()
          .write(
              String.format(
                  "{\"error\":{\"message\":\"injected\",\"type\":\"%s\",\"code\":%d}}",
                  type, status));
    }
  }

  /** Takes what the real answer says and drops it. */
  private static final class Discard extends HttpServletResponseWrapper {
    private final PrintWriter writer = new PrintWriter(new StringWriter());

    Discard(HttpServletResponse response) {
      super(response);
    }

    @Override
    public PrintWriter getWriter() {
      return writer;
    }

    @Override
    public void setStatus(int status) {
      // The status of the real answer stays unseen.
    }
  }

  /** Serves until the process is ended. */
  public static void main(String[] arguments) throws Exception {
    Map<String, String> backend = properties("cat.");
    backend.putIfAbsent("catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog");
    backend.putIfAbsent("jdbc.schema-version", "V1");
    Catalog catalog = CatalogUtil.buildIcebergCatalog("bed", backend, new Configuration());
    Server server = new Server();
    ServerConnector connector = new ServerConnector(server);
    connector.setHost("127.0.0.1");
    connector.setPort(Integer.getInteger("port"));
    server.addConnector(connector);
    ServletContextHandler handler = new ServletContextHandler(ServletContextHandler.NO_SESSIONS);
    handler.addServlet(new ServletHolder(new FaultyServlet(new VendingAdapter(catalog))), "/*");
    server.setHandler(handler);
    server.start();
    server.join();
  }
}
