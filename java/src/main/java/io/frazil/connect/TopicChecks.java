package io.frazil.connect;

import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.KafkaException;

/**
 * What {@code validate} asks the brokers: whether the topics are there. Topics may come later, so a
 * missing one is a warning; brokers that cannot be reached are an error where coordination needs them.
 */
final class TopicChecks {
    private static final int WAIT_MS = 5_000;
    /** Topics that are asked about: a pattern may match many. */
    private static final int DESCRIBED_MAX = 500;
    private static final Pattern LEGAL = Pattern.compile("[A-Za-z0-9._-]{1,249}");
    private static final String TOPICS = "topics";
    private static final String REGEX = "topics.regex";
    private static final String DEAD_LETTERS = "errors.deadletterqueue.topic.name";

    private TopicChecks() {}

    /** Asks the brokers, when it is known where they are. */
    static List<Problem> of(Map<String, String> config, KafkaSettings settings, String coordination) {
        if (settings.values().isEmpty()) {
            return List.of();
        }
        return of(config, settings.values(), coordination, Admin::create);
    }

    /** Tells how many partitions the topics have that the connector reads; nothing when nobody can be asked. */
    static Map<String, Integer> partitions(Map<String, String> config, KafkaSettings settings) {
        if (settings.values().isEmpty()) {
            return Map.of();
        }
        Map<String, Integer> told = new TreeMap<>();
        try (Admin admin = Admin.create(patient(settings.values()))) {
            Set<String> read = read(config, admin.listTopics().names().get(WAIT_MS, TimeUnit.MILLISECONDS));
            admin.describeTopics(read).allTopicNames().get(WAIT_MS, TimeUnit.MILLISECONDS)
                    .forEach((topic, described) -> told.put(topic, described.partitions().size()));
        } catch (ExecutionException | TimeoutException | KafkaException e) {
            return Map.of(); // It was asked for its topics before: what is wrong has been said.
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        return told;
    }

    /** Returns those of the topics that the connector reads, as many as may be asked about. */
    static Set<String> read(Map<String, String> config, Set<String> there) {
        Set<String> listed = listed(config.get(TOPICS));
        String regex = config.get(REGEX);
        Predicate<String> isRead = regex == null || regex.isBlank()
                ? listed::contains
                : Pattern.compile(regex).asMatchPredicate();
        return there.stream().filter(isRead).sorted().limit(DESCRIBED_MAX).collect(Collectors.toCollection(TreeSet::new));
    }

    private static Map<String, Object> patient(Map<String, String> settings) {
        Map<String, Object> values = new HashMap<>(settings);
        values.put("client.id", "frazil-validate");
        values.put("request.timeout.ms", Integer.toString(WAIT_MS));
        values.put("default.api.timeout.ms", Integer.toString(WAIT_MS));
        return values;
    }

    static List<Problem> of(
            Map<String, String> config,
            Map<String, String> settings,
            String coordination,
            Function<Map<String, Object>, Admin> clients) {
        Admin admin = null;
        try {
            admin = clients.apply(patient(settings));
            return compare(config, admin.listTopics().names().get(WAIT_MS, TimeUnit.MILLISECONDS));
        } catch (ExecutionException | TimeoutException | KafkaException e) {
            // A message of these may quote a setting.
            Throwable cause = e instanceof ExecutionException ? e.getCause() : e;
            String key = config.containsKey(KafkaSettings.PREFIX + "bootstrap.servers")
                    ? KafkaSettings.PREFIX + "bootstrap.servers"
                    : Coordination.KEY;
            String message = "the brokers did not tell their topics (" + cause.getClass().getSimpleName()
                    + "): check the address, the login and `" + KafkaSettings.PREFIX + "*`";
            boolean needed = Coordination.isTopic(Map.of(Coordination.RESOLVED_KEY, coordination));
            return List.of(needed ? Problem.error(key, message) : Problem.warning(key, message));
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            return List.of();
        } finally {
            if (admin != null) {
                admin.close(Duration.ofSeconds(1));
            }
        }
    }

    /** Compares what is asked for with the topics that this login may see. */
    static List<Problem> compare(Map<String, String> config, Set<String> there) {
        List<Problem> problems = new ArrayList<>();
        for (String topic : listed(config.get(TOPICS))) {
            if (!isLegal(topic)) {
                problems.add(Problem.error(TOPICS, "`" + topic + "` cannot be the name of a topic"));
            } else if (!there.contains(topic)) {
                problems.add(Problem.warning(TOPICS, "topic `" + topic + "` is not there, or this login may not see"
                        + " it; its records are read once it is"));
            }
        }
        String regex = config.get(REGEX);
        if (regex != null && !regex.isBlank()) {
            try {
                Pattern pattern = Pattern.compile(regex);
                if (there.stream().noneMatch(topic -> pattern.matcher(topic).matches())) {
                    problems.add(Problem.warning(REGEX, "matches no topic that is there now; topics that come later"
                            + " are read"));
                }
            } catch (PatternSyntaxException e) {
                problems.add(Problem.error(REGEX, "is no regular expression: " + e.getDescription()));
            }
        }
        String dead = config.get(DEAD_LETTERS);
        if (dead != null && !dead.isBlank() && !isLegal(dead.trim())) {
            problems.add(Problem.error(DEAD_LETTERS, "cannot be the name of a topic"));
        }
        return problems;
    }

    private static Set<String> listed(String topics) {
        Set<String> names = new TreeSet<>();
        for (String topic : topics == null ? new String[0] : topics.split(",")) {
            if (!topic.isBlank()) {
                names.add(topic.trim());
            }
        }
        return names;
    }

    private static boolean isLegal(String topic) {
        return LEGAL.matcher(topic).matches() && !topic.equals(".") && !topic.equals("..");
    }
}
