-- Questions to the tables of the jobs, as SQL for Spark. spark/examples/lake.ipynb creates a view
-- of each table under its name here.

-- A topic as it was at one time: each message has a row for each of its states.
SELECT message_id, sender, content_raw
FROM messages
WHERE topic_id = (SELECT min(topic_id) FROM topics)
  AND valid_from <= TIMESTAMP '2100-01-01 00:00:00'
  AND (valid_to IS NULL OR valid_to > TIMESTAMP '2100-01-01 00:00:00')
  AND change <> 'deleted'
ORDER BY valid_from, event_id;

-- Messages that were changed most often.
SELECT message_id, first(sender) AS sender, count(*) - 1 AS changes
FROM messages
GROUP BY message_id
ORDER BY changes DESC, message_id
LIMIT 10;

-- The busiest topics, with the newest names of topics and channels.
SELECT c.name AS channel, t.title AS topic, sum(a.messages) AS messages, sum(a.replied) AS replied
FROM activity a
LEFT JOIN activity_topics t ON a.topic_id = t.topic_id
LEFT JOIN activity_channels c ON a.channel_id = c.channel_id
GROUP BY c.name, t.title
ORDER BY messages DESC, channel, topic
LIMIT 10;

-- The 95th percentile of reply times by channel, within 1 %: histograms are added up by bucket,
-- and the first bucket that reaches 95 % of the replies stands for 2 * 1.02^bucket / 2.02 seconds.
WITH waits AS (
  SELECT channel_id, bucket, sum(number) AS number
  FROM activity LATERAL VIEW explode(reply_buckets) AS bucket, number
  GROUP BY channel_id, bucket
), ranked AS (
  SELECT channel_id, bucket,
         sum(number) OVER (PARTITION BY channel_id ORDER BY bucket) AS up_to,
         sum(number) OVER (PARTITION BY channel_id) AS replied
  FROM waits
)
SELECT channel_id, first(replied) AS replied,
       round(2 * power(1.02, min(bucket)) / 2.02, 3) AS reply_p95_seconds
FROM ranked
WHERE up_to >= ceil(0.95 * replied)
GROUP BY channel_id
ORDER BY channel_id;

-- Who answers whom.
SELECT sender, answers, sum(replies) AS replies
FROM activity_pairs
GROUP BY sender, answers
ORDER BY replies DESC, sender, answers
LIMIT 20;

-- The share of deliveries within their objective, by destination and stage.
SELECT log, destination, stage, sum(count) AS count,
       round(sum(within_objective) / sum(count), 4) AS attainment
FROM delivery_latency
GROUP BY log, destination, stage
ORDER BY attainment, log, destination, stage;

-- Why messages were given up.
SELECT log, destination, cause, sum(count) AS dead_letters, max_by(example, day) AS example
FROM delivery_dead_letters
GROUP BY log, destination, cause
ORDER BY dead_letters DESC, log, destination, cause;
