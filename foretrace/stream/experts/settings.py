"""The numbers of the model that were chosen by measurement, each with its source.

The source is in brackets: the day and some words of the title of an entry in `dev/LOG.md` or
`dev/log`, a paper, or a commit. Numbers that determine shapes or protect against rounding stand
beside the code that uses them.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Settings:
    """Rates, priors, shares and limits.

    Args:
        outlier: standard deviations from the mean beyond which a number is an outlier
            [2026-11-21, robustness].
        settled: numbers before outliers are searched for [no record].
        unit_memory: numbers over which mean and deviation are averaged [2026-11-25, level
            shifts: 1,000 loses .4 % on ETTh1].
        new_level: outliers, minus other numbers between them, after which there is a new level
            [2026-11-27, rules of units].
        new_scale: consecutive numbers after which there is a smaller scale [2026-11-27, rules of
            units].
        narrow: largest distance between these numbers, in standard deviations [2026-11-25, level
            shifts: .001 is level].
        first_far: multiple of the median distance of the first labels beyond which a label is left
            out [2026-11-28, one broken label].
        forgiven: outliers that one other label outweighs; at most a quarter is left out
            [2026-11-28, one broken label].
        far: distance above which a label may be broken, in ordinary deviations [2026-11-28, one
            broken label].
        beyond: the same distance, relative to the largest label that was predicted right
            [2026-11-28, one broken label].
        right: largest error of a right prediction, in mean errors [2026-11-28, one broken label].
        believed: consecutive far labels that become features, and sentinels that become labels
            [2026-11-28, one broken label].
        outside: distance above which a repeated label may be a sentinel, in ordinary deviations
            [commit 763be959].
        close: largest difference of two such labels that are close, relative to their distance from
            the mean [commit 763be959].
        new_errors: consecutive clipped errors that make a new scale [2026-11-25, level shifts].
        largest: largest feature, in standard deviations, to limit the leverage of a row
            [2026-11-23, cheap experts: 10 loses].
        slope: slope of a soft step at its threshold [2026-11-26, no choice was made on: steps
            without width lose on seven of nine].
        far_out: standard deviations above which a row is unusual [2026-11-23, reach as a default].
        rare: largest fraction of unusual rows that counts as rare [2026-11-23, reach as a default].
        rare_span: rows over which this fraction is measured [no record].
        reach: largest distance from the mean or last number that is learned, in standard deviations
            [no record].
        far_change: largest distance of the last number from the mean, in standard deviations
            [2026-11-28, one broken label].
        sharpness: factor by which scores of classes are multiplied to get logits [2026-11-23, rows
            without a past: 3, 10 and 20 are level].
        season_memory: labels over which the error of a lag is averaged [no record].
        season_close: multiple of the smallest error up to which a shorter period is taken
            [2026-11-29, a seasonal expert].
        seasonal_rates: rates of a season and its level [2026-11-29, a seasonal expert].
        count_memory: labels that counts of classes remember [no record].
        huber: multiple of the scale above which an error has a smaller weight [2026-11-23, cheap
            experts].
        error_span: labels over which the scale of errors is averaged [2026-11-23, cheap experts].
        error_clip: multiple of the scale at which an error is clipped before it is averaged [no
            record].
        forget: factor by which the weight of old rows is multiplied at a label [2026-11-23, cheap
            experts: .9999 is within 1 %].
        prior: variance of a coefficient before the first row [2026-11-23, cheap experts].
        number_prior: the same variance for numbers [2026-11-23, cheap experts].
        raw_row_prior: the same variance for unscaled numbers of the row, relative to the first row
            [2026-11-26, without units].
        raw_lags_prior: the same variance for many unscaled lags, which need the stronger prior
            [2026-11-26, without units].
        raw_limit: innovation above which a row has a smaller weight, in scales of innovations
            [2026-11-28, one broken label].
        raw_clip: innovation at which it is clipped before it is averaged, in scales [2026-11-28,
            one broken label].
        weaker: factor of the unused prior in an innovation, so that a new column is no outlier
            [2026-11-28, one broken label].
        farthest: largest trusted distance from the base, relative to the largest right label
            [2026-11-28, one broken label].
        doubted: the same distance, after a prediction beyond it was wrong [2026-11-28, one broken
            label].
        gradient_clip: largest error of a number in a gradient step [no record].
        softmax_rates: learning rates of `gradient` for classes [no record].
        word_rates: learning rates of `words` [2026-11-27, words of texts].
        word_prior: texts that a word has to outweigh in naive Bayes [2026-11-29, words].
        steering: number of classes, counted from the first, whose errors train the modules of
            `memory` [2026-11-25, behind a guard].
        late: largest change of a late label's state to the present parameters [2026-11-28, two
            events].
        chosen: number of values from earlier rows that `distant` chooses [2026-11-25, behind a
            guard].
        search_every: labels between the searches of `distant` [2026-11-25, behind a guard].
        search_first: labels before its first search [2026-11-25, behind a guard].
        at_once: largest number of values chosen in a search [2026-11-25, behind a guard].
        z: correlation that a chosen value needs, because thousands are compared [2026-11-25, behind
            a guard].
        search_memory: labels over which correlations are averaged [2026-11-25, behind a
            guard].
        residual: multiple of its size at which a residual of the network is clipped [no record].
        residual_memory: labels over which slope and size of residuals are averaged [no record].
        class_rates: learning rates of the exponents [2026-11-23, cheap experts: slower ones lose a
            point].
        class_share: fraction that weights give to all experts at each label [2026-11-23, cheap
            experts].
        class_top_share: the same fraction at the top [2026-11-23, cheap experts].
        floor: probability mixed into every prediction, so that none excludes a class [2026-11-23,
            cheap experts].
        escape: probability for classes that were never seen [no record].
        number_rates: learning rates of the combinations [2026-11-23, rows without a past].
        number_shares: fractions that the weights of the combinations share [no record].
        top_rate: learning rate of the top [2026-11-23, rows without a past].
        top_share: fraction that the weights at the top share [no record].
        last_rate: learning rate of the last average [2026-11-26, averaged once more].
        last_share: fraction that the weights of the last average share [2026-11-26, averaged once
            more].
        last_prior: weight of the top in the last average before the first label
            [2026-11-26, averaged once more].
        clip: distance at which predictions, errors and gradients are clipped, in units
            [2026-11-26, without units].
        clip_error: error at which a label is clipped in the learning of weights, in units
            [2026-11-26, defects].
        number_span: labels over which the unit is averaged, and independent labels of the gap
            [2026-11-26, defects].
        unit_clip: multiple of the unit at which an error is clipped before it is averaged
            [2026-11-28, one broken label].
        recent: independent labels in the recent error [2026-11-26, defects].
        fallen: multiple of the recent error that limits the unit [2026-11-26, defects].
        quantile_rates: learning rates of the quantiles [Zaffran et al., ICML 2022; 2026-11-23,
            intervals].
        quantile_spans: labels over which the two scales of the quantiles are averaged [2026-11-23,
            intervals].
        offset_rate: learning rate of the offset [Angelopoulos et al., NeurIPS 2023].
        interval_late: number of rows of lateness that doubles spans and halves rates [2026-11-28,
            what people meet].
        offset_late: largest factor on the rate of the offset [likewise].
        first_late: factor on the margins of rows before the first late label [likewise].
        loss_rate: learning rate of the weights [Zaffran et al.; 2026-11-23, intervals].
        loss_share: fraction that the weights share [no record].
        member_prior: labels that the errors of a member have to outweigh [2026-11-27, forecasts
            learn first].
        past_errors: errors of a stream before one can be unusual [2026-11-28, unusual rows].
        past_span: errors over which they are remembered [2026-11-28, unusual rows].
        recent_errors: errors in the mean of the last ones [2026-11-28, unusual rows].
        beyond_past: largest factor on the score of an error beyond all past ones [2026-11-28,
            unusual rows].
        member_span: labels over which the errors of a member are averaged [2026-11-27,
            forecasts learn first].
        exact: ratio of the fast to the slow scale below which a stretch is exact [2026-11-25, level
            shifts].
    """

    # Units of columns and labels, and outliers
    outlier: float = 10.0
    settled: int = 30
    unit_memory: int = 3_000
    new_level: int = 30
    new_scale: int = 300
    narrow: float = 0.05
    first_far: float = 20.0
    forgiven: float = 1 / 3
    far: float = 300.0
    beyond: float = 2.0
    right: float = 4.0
    believed: int = 30
    outside: float = 8.0
    close: float = 0.05
    new_errors: int = 30
    # Features
    largest: float = 5.0
    slope: float = 3.0
    far_out: float = 4.0
    rare: float = 0.1
    rare_span: float = 1000.0
    # Experts
    reach: float = 20.0
    far_change: float = 300.0
    sharpness: float = 6.0
    season_memory: float = 1000.0
    season_close: float = 1.05
    seasonal_rates: tuple[tuple[float, float], ...] = (
        (1, 0.8),
        (0.4, 0.4),
        (0.15, 0.1),
        (0.15, 0.4),
    )
    count_memory: float = 10_000.0
    huber: float = 1.5
    error_span: float = 300.0
    error_clip: float = 5.0
    forget: float = 0.9995
    prior: float = 1.0
    number_prior: float = 0.1
    raw_row_prior: float = 100.0
    raw_lags_prior: float = 1.0
    raw_limit: float = 4.0
    raw_clip: float = 3.0
    weaker: float = 1000.0
    farthest: float = 300.0
    doubted: float = 2.0
    gradient_clip: float = 3.0
    softmax_rates: tuple[float, ...] = (0.3, 2.0)
    word_rates: tuple[float, ...] = (0.2, 0.6)
    word_prior: float = 2.0
    steering: int = 4
    late: float = 5.0
    chosen: int = 8
    search_every: int = 50
    search_first: int = 200
    at_once: int = 4
    z: float = 6.0
    search_memory: float = 5000.0
    residual: float = 10.0
    residual_memory: float = 3000.0
    # Mixture of classes
    class_rates: tuple[float, ...] = (3e-4, 2e-3, 1e-2, 5e-2)
    class_share: float = 1e-3
    class_top_share: float = 1e-4
    floor: float = 1e-2
    escape: float = 1e-4
    # Mixture of numbers
    number_rates: tuple[float, ...] = (0.02, 0.1, 0.4, 1.0)
    number_shares: tuple[float, ...] = (1e-4, 1e-2)
    top_rate: float = 0.5
    top_share: float = 1e-3
    last_rate: float = 0.02
    last_share: float = 1e-4
    last_prior: float = 0.9
    clip: float = 8.0
    clip_error: float = 3.0
    number_span: float = 200.0
    unit_clip: float = 5.0
    recent: float = 25.0
    fallen: float = 4.0
    # Intervals
    quantile_rates: tuple[float, ...] = (0.02, 0.1)
    quantile_spans: tuple[float, ...] = (20.0, 200.0)
    offset_rate: float = 0.02
    interval_late: float = 5.0
    offset_late: float = 3.0
    first_late: float = 2.0
    loss_rate: float = 0.3
    loss_share: float = 1e-3
    member_prior: float = 3.0
    past_errors: float = 100.0
    past_span: float = 4000.0
    recent_errors: int = 10
    beyond_past: float = 2.0
    member_span: float = 50.0
    exact: float = 0.01


TUNED = Settings()
"""Settings of every model."""
